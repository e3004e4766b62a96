// The fused product on Hopper's matrix units, put together from CUTLASS's parts: a persistent warp-specialised kernel
// whose epilogue is a tree of visitors: accumulators (plus bias), 2^(fma), row sums of a tile, store.
#pragma once

#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cute/tensor.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/epilogue/fusion/operations.hpp>
#include <cutlass/epilogue/fusion/sm90_callbacks_tma_warpspecialized.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "kernels/cuda_check.cuh"
#include "kernels/exp_product.h"
#include "kernels/multiprocessors.cuh"

namespace regather::kernels::sm90 {

using cute::_0;
using cute::_1;
using cute::Shape;
using cute::Stride;
namespace fusion = cutlass::epilogue::fusion;

// 2^(logit log2(e) + negative shift), on fragments.
template <class T>
struct ShiftedExp;
template <int Size>
struct ShiftedExp<cutlass::Array<float, Size>> {
  using Fragment = cutlass::Array<float, Size>;
  CUTLASS_DEVICE Fragment operator()(const Fragment& logit, const Fragment& negative_shift) const {
    Fragment result;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Size; ++i) result[i] = exp2_fast(fmaf(logit[i], kLog2E, negative_shift[i]));
    return result;
  }
};

template <class TileShape_, class ClusterShape_, class Mainloop_, class Epilogue_, bool WithBias_, bool Store_ = true,
          class EpilogueTile_ = cutlass::epilogue::collective::EpilogueTileAuto>
struct Configuration {
  using TileShape = TileShape_;
  using ClusterShape = ClusterShape_;
  using Mainloop = Mainloop_;
  using Epilogue = Epilogue_;
  using EpilogueTile = EpilogueTile_;
  static constexpr bool kWithBias = WithBias_;
  static constexpr bool kStore = Store_;
};

template <class Config>
struct Kernel {
  using Element = cutlass::bfloat16_t;
  static constexpr auto kRound = cutlass::FloatRoundStyle::round_to_nearest;
  static constexpr int kAlignment = 8;
  using TileShape = typename Config::TileShape;

  // Element by element: a chunk may begin at any row, and a vocabulary end anywhere.
  using Shift = fusion::Sm90ColBroadcast<0, TileShape, float, float, Stride<_1, _0, _0>, 1, false>;
  using Bias = fusion::Sm90RowBroadcast<0, TileShape, Element, float, Stride<_0, _1, _0>, 1, false>;
  using BiasedLogit =
      fusion::Sm90EVT<fusion::Sm90Compute<cutlass::plus, float, float, kRound>, fusion::Sm90AccFetch, Bias>;
  using Logit = cute::conditional_t<Config::kWithBias, BiasedLogit, fusion::Sm90AccFetch>;
  using Exp = fusion::Sm90EVT<fusion::Sm90Compute<ShiftedExp, float, float, kRound>, Logit, Shift>;
  using Sums = fusion::Sm90ColReduction<cutlass::plus, cutlass::plus, cutlass::plus, 0, TileShape, float, float, kRound,
                                        Stride<_1, _0, _0>, 4, false, false, true>;
  // What is not stored has a type all the same.
  struct SumsOnly : Sums {
    using ElementAux = Element;
    using Sums::Sums;
  };
  using Tree = fusion::Sm90EVT<cute::conditional_t<Config::kStore, Sums, SumsOnly>, Exp>;
  using Output = cute::conditional_t<Config::kStore, Element, void>;

  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, typename Config::ClusterShape,
      typename Config::EpilogueTile, float, float, void, cutlass::layout::RowMajor, kAlignment, Output,
      cutlass::layout::RowMajor, kAlignment, typename Config::Epilogue, Tree>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, cutlass::layout::RowMajor, kAlignment, Element,
      cutlass::layout::ColumnMajor, kAlignment, float, TileShape, typename Config::ClusterShape,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
      typename Config::Mainloop>::CollectiveOp;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<cutlass::gemm::kernel::GemmUniversal<
      Shape<int, int, int, int>, Mainloop, Epilogue, cutlass::gemm::PersistentScheduler>>;
};

template <class Config>
void launch(const ExpProduct& problem, Stream stream) {
  using K = Kernel<Config>;
  using Gemm = typename K::Gemm;
  using Element = typename K::Element;
  const int rows = static_cast<int>(problem.rows);
  const int vocab = static_cast<int>(problem.vocab);
  const int width = static_cast<int>(problem.width);

  typename K::Exp::Arguments exp{};
  auto shift = typename K::Shift::Arguments{problem.negative_shift, 0.0F, {}};
  typename K::Sums::Arguments sums{problem.partial_sums, 0.0F, {}};
  typename K::Tree::Arguments tree;
  if constexpr (Config::kWithBias) {
    tree = {{{{}, {static_cast<const Element*>(problem.bias), Element(0), {}}, {}}, shift, {}}, sums};
  } else {
    tree = {{{}, shift, {}}, sums};
  }
  typename Gemm::GemmKernel::StrideD pitch{};
  cute::get<0>(pitch) = problem.pitch;
  typename Gemm::GemmKernel::StrideA stride_a{};
  cute::get<0>(stride_a) = problem.width;
  typename Gemm::GemmKernel::StrideB stride_b{};
  cute::get<0>(stride_b) = problem.width;
  typename Gemm::Arguments arguments{
      cutlass::gemm::GemmUniversalMode::kGemm,
      {rows, vocab, width, 1},
      {static_cast<const Element*>(problem.hidden), stride_a, static_cast<const Element*>(problem.weight), stride_b},
      {tree, nullptr, pitch, nullptr, pitch}};
  if constexpr (Config::kStore) arguments.epilogue.ptr_D = static_cast<Element*>(problem.exponentials);
  // All row tiles of a slice of the vocabulary together, so that the slice is read from memory once.
  arguments.scheduler.raster_order = cutlass::gemm::kernel::detail::RasterOrderOptions::AlongM;
  arguments.scheduler.max_swizzle_size = 1;
  arguments.hw_info.sm_count = multiprocessors();

  Gemm gemm;
  // CUTLASS's own check is not asked: it wants whole vectors of columns, the copy engine only whole vectors a pitch.
  require(problem.pitch % 8 == 0 && problem.width % 8 == 0, "exp_product: rows must begin at multiples of 16 bytes");
  require(gemm.initialize(arguments, nullptr, stream) == cutlass::Status::kSuccess, "exp_product: not initialised");
  require(gemm.run(stream) == cutlass::Status::kSuccess, "exp_product: not launched");
  check_launch("exp_product");
}

}  // namespace regather::kernels::sm90
