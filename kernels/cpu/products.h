// The three products of a chunk of rows and the exponentials between them, for one thread: a tile of the vocabulary at
// a time, so that its weight is read from memory once for two of them. By the vector unit of whichever width the
// processor has, or by AMX.
#pragma once

#include <cstdint>
#include <memory>

namespace regather::kernels::cpu {

// Tiles of exponentials and of gradients have rows so long, whatever their number of columns that count.
constexpr int64_t kPad = 32;
constexpr int64_t padded(int64_t count) { return (count + kPad - 1) / kPad * kPad; }
// Rows of the vocabulary in a tile, at most.
constexpr int64_t kTile = 128;

struct ChunkSize {
  int64_t rows = 0;   // C
  int64_t width = 0;  // H
  // Hidden states and weight are of bfloat16 values, of which AMX needs one part.
  bool narrow = false;
};

class Products {
 public:
  virtual ~Products() = default;

  // x [C, H], once a chunk, for the logits; the hidden states' gradient starts at zero.
  virtual void set_hidden(const float* x) = 0;
  // out[v][row] = weight[v] . x[row]; weight [count, H] dense, out [count, padded(C)].
  virtual void logits(const float* weight, int64_t count, float* out) = 0;
  // values = exp(values - shift[row]), added to sums[row]; [count, padded(C)], shift and sums [padded(C)].
  virtual void exponentials(float* values, int64_t count, const float* shift, float* sums) = 0;
  // Adds the sum over v of values[v][row] weight[v], for the weight that the last call of logits was given.
  virtual void add_hidden_gradient(const float* values, int64_t count) = 0;
  // [C, padded(H)]
  virtual const float* hidden_gradient() const = 0;

  // x [C, H], once a chunk, for the weight's gradient.
  virtual void set_rows(const float* x) = 0;
  // out[v] = the sum over rows of values[v][row] x[row]; values [count, padded(C)], zero beyond C; out
  // [count, padded(H)].
  virtual void weight_gradient(const float* values, int64_t count, float* out) = 0;
};

// Null where this processor or this build lacks it.
std::unique_ptr<Products> amx_products(const ChunkSize& size);
std::unique_ptr<Products> avx512_products(const ChunkSize& size);
std::unique_ptr<Products> avx2_products(const ChunkSize& size);
std::unique_ptr<Products> plain_products(const ChunkSize& size);

}  // namespace regather::kernels::cpu
