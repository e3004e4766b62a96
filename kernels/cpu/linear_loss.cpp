#include "kernels/cpu/linear_loss.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cpu/coefficients.h"
#include "kernels/cpu/numbers.h"
#include "kernels/cpu/products.h"
#include "kernels/defect.h"
#include "kernels/error.h"

namespace regather::kernels::cpu {
namespace {

using Floats = std::vector<float>;
using MakeProducts = std::unique_ptr<Products> (*)(const ChunkSize&);

constexpr std::pair<Unit, MakeProducts> kUnits[] = {{Unit::amx, amx_products},
                                                    {Unit::avx512, avx512_products},
                                                    {Unit::avx2, avx2_products},
                                                    {Unit::plain, plain_products}};

std::unique_ptr<Products> make_products(Unit unit, const ChunkSize& size) {
  for (const auto& [name, make] : kUnits) {
    if (unit != name && unit != Unit::best) continue;
    if (auto made = make(size)) return made;
  }
  return nullptr;
}

// work(thread) in each of `threads` threads; the first that threw decides.
template <class Work>
void in_threads(int threads, const Work& work) {
  std::vector<std::exception_ptr> failed(static_cast<size_t>(threads));
  const auto guarded = [&](int thread) {
    try {
      work(thread);
    } catch (...) {
      failed[static_cast<size_t>(thread)] = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(guarded, thread);
  guarded(0);
  for (std::thread& other : others) other.join();
  for (const std::exception_ptr& failure : failed) {
    if (failure) std::rethrow_exception(failure);
  }
}

// Above this a row's largest logit is far above the target's, and is taken for the shift instead.
constexpr float kLargestSum = 2.3538527e17F;  // e^40
// The shift of rows that are there only to fill a vector: their exponentials are 0.
constexpr float kNoRow = 1e30F;
// Multiplications for which another thread is worth starting.
constexpr int64_t kThreadWork = int64_t{1} << 22U;

int threads_for(const Options& options, const Linear& linear, int64_t rows) {
  const int most = options.threads > 0 ? options.threads : static_cast<int>(std::thread::hardware_concurrency());
  const int64_t tiles = (linear.vocab + kTile - 1) / kTile;
  const int64_t work = linear.vocab * linear.width * rows / kThreadWork;
  return static_cast<int>(std::clamp<int64_t>(std::min(tiles, work), 1, std::max(most, 1)));
}

// What a thread has for itself.
struct Worker {
  std::unique_ptr<Products> products;
  Floats values;    // a tile's exponentials
  Floats weight;    // a tile's, where it is not in float32
  Floats gradient;  // a tile's
  Floats sums;      // [padded(C)], of the thread's part of the vocabulary, the target's left out
  Floats largest;   // [padded(C)], of logits
};

// A chunk of rows: its state between the passes over the vocabulary.
class Chunk {
 public:
  Chunk(const Linear& linear, const Kept& kept, const Span& span, const Options& options)
      : linear_(linear),
        kept_(kept),
        span_(span),
        pitch_(padded(span.count)),
        threads_(threads_for(options, linear, span.count)),
        defect_(options.defect),
        hidden_(static_cast<size_t>(span.count * linear.width)),
        shift_(static_cast<size_t>(pitch_), kNoRow),
        target_logit_(static_cast<size_t>(pitch_)),
        others_(static_cast<size_t>(pitch_)),
        sum_(static_cast<size_t>(pitch_)),
        workers_(static_cast<size_t>(threads_)) {
    for (int64_t row = 0; row < span.count; ++row) {
      widen(linear.hidden, linear.dtype, kept.row[span.first + row] * linear.width, linear.width, hidden_of(row));
      by_target_.emplace_back(kept.target[span.first + row], row);
    }
    std::sort(by_target_.begin(), by_target_.end());
    const auto tile = static_cast<size_t>(kTile);
    for (Worker& worker : workers_) {
      worker.products = make_products(options.unit, {span.count, linear.width, linear.dtype == Dtype::bf16});
      worker.values.resize(tile * static_cast<size_t>(pitch_));
      if (linear.dtype != Dtype::fp32) worker.weight.resize(tile * static_cast<size_t>(linear.width));
      worker.sums.resize(static_cast<size_t>(pitch_));
    }
  }

  // Defect::stale_sum: each row's sum starts at that of the same row of another chunk.
  void start_from(const Floats& sums) { stale_ = sums; }
  const Floats& sums() const { return sum_; }

  // The exponentials' rows, one of the vocabulary each, `stride` bytes apart, from where the second pass takes them;
  // null: only sums are wanted.
  void exponentials(char* to, int64_t stride) {
    exponentials_ = to;
    stride_ = stride;
    Floats weight(static_cast<size_t>(linear_.width));
    for (int64_t row = 0; row < span_.count; ++row) {
      const int64_t target = kept_.target[span_.first + row];
      widen(linear_.weight, linear_.dtype, target * linear_.width, linear_.width, weight.data());
      float logit = bias_of(target);
      for (int64_t h = 0; h < linear_.width; ++h) logit += hidden_of(row)[h] * weight[static_cast<size_t>(h)];
      shift_[static_cast<size_t>(row)] = logit;
    }
    first_pass();
    bool far = false;
    for (int64_t row = 0; row < span_.count; ++row) far = far || is_far(row);
    if (!far) return;
    find_largest();
    first_pass();
  }

  void log_probabilities(float* out) const {
    for (int64_t row = 0; row < span_.count; ++row) {
      const auto i = static_cast<size_t>(row);
      out[row] = std::min(target_logit_[i] - shift_[i] - std::log(sum_[i]), 0.0F);
    }
  }

  // The gradient by the logits is s (E - S [target]) with s = -coefficient / S; the target's element of that is
  // -s (S - E), where the difference is the others' sum.
  void gradients(const float* coefficient, const Results& results, bool accumulate) {
    Floats scale(static_cast<size_t>(pitch_));
    for (int64_t row = 0; row < span_.count; ++row) {
      scale[static_cast<size_t>(row)] = -coefficient[row] / sum_[static_cast<size_t>(row)];
      if (defect_ == Defect::scaled_twice) scale[static_cast<size_t>(row)] *= coefficient[row];
    }
    hidden_gradient(scale, results.hidden_gradient);
    const int64_t width = padded(linear_.width);
    each_tile(
        [&](Worker& worker) {
          worker.gradient.resize(static_cast<size_t>(kTile * width));
          worker.products->set_rows(hidden_.data());
        },
        [&](Worker& worker, int64_t first, int64_t count) {
          take_exponentials(worker, first, count, scale);
          worker.products->weight_gradient(worker.values.data(), count, worker.gradient.data());
          for (int64_t v = 0; v < count; ++v) {
            const auto put = accumulate ? add_narrow : narrow;
            put(worker.gradient.data() + v * width, linear_.width, results.weight_dtype, results.weight_gradient,
                (first + v) * linear_.width);
            if (results.bias_gradient == nullptr) continue;
            float sum = 0;
            for (int64_t row = 0; row < span_.count; ++row) sum += worker.values[static_cast<size_t>(v * pitch_ + row)];
            results.bias_gradient[first + v] = accumulate ? results.bias_gradient[first + v] + sum : sum;
          }
        });
  }

 private:
  float* hidden_of(int64_t row) { return hidden_.data() + row * linear_.width; }
  float bias_of(int64_t v) const {
    float bias = 0;
    if (linear_.bias != nullptr) widen(linear_.bias, linear_.dtype, v, 1, &bias);
    return bias;
  }
  bool is_far(int64_t row) const {
    const auto i = static_cast<size_t>(row);
    return !(sum_[i] <= kLargestSum) && std::isfinite(shift_[i]);
  }

  // begin(worker), then tile(worker, first, count) for each tile of its part of the vocabulary.
  template <class Begin, class Tile>
  void each_tile(const Begin& begin, const Tile& tile) {
    const int64_t tiles = (linear_.vocab + kTile - 1) / kTile;
    in_threads(threads_, [&](int thread) {
      Worker& worker = workers_[static_cast<size_t>(thread)];
      begin(worker);
      for (int64_t i = thread * tiles / threads_; i < (thread + 1) * tiles / threads_; ++i) {
        tile(worker, i * kTile, std::min(kTile, linear_.vocab - i * kTile));
      }
    });
  }

  void logits(Worker& worker, int64_t first, int64_t count) const {
    const float* weight = static_cast<const float*>(linear_.weight) + first * linear_.width;
    if (linear_.dtype != Dtype::fp32) {
      widen(linear_.weight, linear_.dtype, first * linear_.width, count * linear_.width, worker.weight.data());
      weight = worker.weight.data();
    }
    worker.products->logits(weight, count, worker.values.data());
    if (linear_.bias == nullptr) return;
    for (int64_t v = 0; v < count; ++v) {
      const float bias = bias_of(first + v);
      float* values = worker.values.data() + v * pitch_;
      for (int64_t row = 0; row < pitch_; ++row) values[row] += bias;
    }
  }

  // work(row, element) for the targets' elements of a tile.
  template <class Work>
  void each_target(Worker& worker, int64_t first, int64_t count, const Work& work) const {
    auto found = std::lower_bound(by_target_.begin(), by_target_.end(), std::pair<int64_t, int64_t>(first, 0));
    for (; found != by_target_.end() && found->first < first + count; ++found) {
      work(static_cast<size_t>(found->second),
           worker.values[static_cast<size_t>((found->first - first) * pitch_ + found->second)]);
    }
  }

  void first_pass() {
    each_tile(
        [&](Worker& worker) {
          worker.products->set_hidden(hidden_.data());
          std::fill(worker.sums.begin(), worker.sums.end(), 0.0F);
        },
        [&](Worker& worker, int64_t first, int64_t count) {
          logits(worker, first, count);
          each_target(worker, first, count, [&](size_t row, float& logit) {
            target_logit_[row] = logit;
            logit = -INFINITY;
          });
          worker.products->exponentials(worker.values.data(), count, shift_.data(), worker.sums.data());
          if (exponentials_ == nullptr) return;
          for (int64_t v = 0; v < count; ++v) {
            std::memcpy(exponentials_ + (first + v) * stride_, worker.values.data() + v * pitch_, row_bytes());
          }
          worker.products->add_hidden_gradient(worker.values.data(), count);
        });
    for (size_t row = 0; row < sum_.size(); ++row) {
      others_[row] = 0;
      for (const Worker& worker : workers_) others_[row] += worker.sums[row];
      if (defect_ == Defect::counted_pad) others_[row] += kCountedPad * std::exp(-shift_[row]);
      if (row < stale_.size()) others_[row] += stale_[row];
      sum_[row] = others_[row] + std::exp(target_logit_[row] - shift_[row]);
    }
  }

  // The target's element of the gradient by the logits, before it is scaled.
  float at_target(size_t row) const {
    return defect_ == Defect::unpatched_target ? sum_[row] - others_[row] : -others_[row];
  }

  // The largest logits become the shifts of the rows that need them.
  void find_largest() {
    each_tile([&](Worker& worker) { worker.largest.assign(static_cast<size_t>(pitch_), -INFINITY); },
              [&](Worker& worker, int64_t first, int64_t count) {
                logits(worker, first, count);
                for (int64_t v = 0; v < count; ++v) {
                  const float* values = worker.values.data() + v * pitch_;
                  for (size_t row = 0; row < worker.largest.size(); ++row) {
                    worker.largest[row] = std::max(worker.largest[row], values[row]);
                  }
                }
              });
    for (int64_t row = 0; row < span_.count; ++row) {
      if (!is_far(row)) continue;
      const auto i = static_cast<size_t>(row);
      shift_[i] = -INFINITY;
      for (const Worker& worker : workers_) shift_[i] = std::max(shift_[i], worker.largest[i]);
    }
  }

  void hidden_gradient(const Floats& scale, void* out) {
    Floats sum(static_cast<size_t>(linear_.width));
    Floats weight(sum.size());
    for (int64_t row = 0; row < span_.count; ++row) {
      std::fill(sum.begin(), sum.end(), 0.0F);
      for (const Worker& worker : workers_) {
        const float* part = worker.products->hidden_gradient() + row * padded(linear_.width);
        for (size_t h = 0; h < sum.size(); ++h) sum[h] += part[h];
      }
      const auto i = static_cast<size_t>(row);
      widen(linear_.weight, linear_.dtype, kept_.target[span_.first + row] * linear_.width, linear_.width,
            weight.data());
      const float target = at_target(i);
      for (size_t h = 0; h < sum.size(); ++h) sum[h] = scale[i] * (sum[h] + target * weight[h]);
      narrow(sum.data(), linear_.width, linear_.dtype, out, kept_.row[span_.first + row] * linear_.width);
    }
  }

  // The gradient by the logits of a tile.
  void take_exponentials(Worker& worker, int64_t first, int64_t count, const Floats& scale) const {
    for (int64_t v = 0; v < count; ++v) {
      float* values = worker.values.data() + v * pitch_;
      std::memcpy(values, exponentials_ + (first + v) * stride_, row_bytes());
      for (size_t row = 0; row < scale.size(); ++row) values[row] *= scale[row];
    }
    each_target(worker, first, count, [&](size_t row, float& element) { element = scale[row] * at_target(row); });
  }

  size_t row_bytes() const { return static_cast<size_t>(pitch_) * sizeof(float); }

  const Linear& linear_;
  const Kept& kept_;
  const Span& span_;
  int64_t pitch_;
  int threads_;
  Defect defect_;
  Floats hidden_;  // [C, H]
  Floats shift_;
  Floats target_logit_;
  Floats others_;  // sums of exponentials without the target's
  Floats sum_;
  Floats stale_;
  std::vector<Worker> workers_;
  std::vector<std::pair<int64_t, int64_t>> by_target_;  // target, row of the chunk
  char* exponentials_ = nullptr;
  int64_t stride_ = 0;
};

void check(const Linear& linear, const Options& options) {
  require(linear.rows >= 0 && linear.width > 0 && linear.vocab > 0, "linear_loss: sizes must be positive");
  require(linear.rows < INT32_MAX && linear.vocab < INT32_MAX && linear.width < INT32_MAX,
          "linear_loss: sizes must fit 32 bits");
  require(options.chunk_rows > 0, "linear_loss: a chunk must have rows");
  require(has(options.unit), "linear_loss: this processor has no such unit");
}

// What no chunk will write.
void clear(const Linear& linear, const Results& results, int64_t kept) {
  const auto zero = [](void* at, int64_t bytes) { std::memset(at, 0, static_cast<size_t>(bytes)); };
  if (kept < linear.rows) {
    zero(results.hidden_gradient, linear.rows * linear.width * size_of(linear.dtype));
    if (results.log_probabilities != nullptr) zero(results.log_probabilities, linear.rows * 4);
  }
  if (kept > 0) return;
  zero(results.weight_gradient, linear.vocab * linear.width * size_of(results.weight_dtype));
  if (results.bias_gradient != nullptr) zero(results.bias_gradient, linear.vocab * 4);
}

}  // namespace

bool has(Unit unit) { return make_products(unit, {1, 1, false}) != nullptr; }

void linear_loss(const Linear& linear, const LossParameters& loss, const Results& results, const Options& options) {
  check(linear, options);
  require(results.weight_dtype == Dtype::fp32 || results.weight_dtype == linear.dtype,
          "linear_loss: the weight's gradient is fp32 or of the weight's dtype");
  const Sequences sequences = sequences_of(linear, loss);
  const Kept kept = find_kept(linear, sequences);
  std::vector<Span> spans = spans_of(sequences, kept.count(), kept.start.data(), options.chunk_rows, kPad);
  if (options.defect == Defect::lost_chunk && !spans.empty()) {
    spans.pop_back();
    clear(linear, results, 0);
  }
  clear(linear, results, kept.count());
  Floats stale;
  Floats log_probability(static_cast<size_t>(kept.count()));
  std::vector<char> space;
  double value = 0;
  bool accumulate = false;
  for (const Span& span : spans) {
    Floats coefficient(static_cast<size_t>(span.count));
    if (span.count == 0) {
      value += coefficients(loss, kept, sequences, span, log_probability.data(), coefficient.data());
      continue;
    }
    Chunk chunk(linear, kept, span, options);
    chunk.start_from(stale);
    const int64_t row_bytes = padded(span.count) * 4;
    const int64_t gradient_bytes = linear.width * size_of(results.weight_dtype);
    if (!accumulate && row_bytes <= gradient_bytes) {
      chunk.exponentials(static_cast<char*>(results.weight_gradient), gradient_bytes);
    } else {
      space.resize(std::max(space.size(), static_cast<size_t>(linear.vocab * row_bytes)));
      chunk.exponentials(space.data(), row_bytes);
    }
    chunk.log_probabilities(log_probability.data() + span.first);
    value += coefficients(loss, kept, sequences, span, log_probability.data(), coefficient.data());
    chunk.gradients(coefficient.data(), results, accumulate);
    if (options.defect == Defect::stale_sum) stale = chunk.sums();
    accumulate = true;
  }
  *results.loss = static_cast<float>(value);
  if (results.log_probabilities == nullptr) return;
  for (size_t i = 0; i < log_probability.size(); ++i) results.log_probabilities[kept.row[i]] = log_probability[i];
}

void log_probabilities(const Linear& linear, float* out, const Options& options) {
  check(linear, options);
  const Sequences sequences{1, linear.rows, 0};
  const Kept kept = find_kept(linear, sequences);
  std::fill(out, out + linear.rows, 0.0F);
  for (const Span& span : spans_of(sequences, kept.count(), kept.start.data(), options.chunk_rows, kPad)) {
    Chunk chunk(linear, kept, span, options);
    chunk.exponentials(nullptr, 0);
    Floats found(static_cast<size_t>(span.count));
    chunk.log_probabilities(found.data());
    for (int64_t i = 0; i < span.count; ++i) out[kept.row[span.first + i]] = found[static_cast<size_t>(i)];
  }
}

}  // namespace regather::kernels::cpu
