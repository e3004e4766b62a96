// A matrix product on Hopper's matrix units from CUTLASS's parts: out = left right, or out += left right.
#pragma once

#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cute/tensor.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/epilogue/fusion/operations.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include <type_traits>

#include "kernels/cuda_check.cuh"
#include "kernels/matmul.h"
#include "kernels/multiprocessors.cuh"

namespace regather::kernels::sm90 {

// left is [inner, rows] in memory where LeftTransposed; right [inner, columns].
template <class TileShape_, class ClusterShape_, class Mainloop_, class Epilogue_, class Scheduler_, class Out_,
          bool LeftTransposed_, bool Accumulate_>
struct ProductConfiguration {
  using TileShape = TileShape_;
  using ClusterShape = ClusterShape_;
  using Mainloop = Mainloop_;
  using Epilogue = Epilogue_;
  using Scheduler = Scheduler_;
  using Out = Out_;
  static constexpr bool kLeftTransposed = LeftTransposed_;
  static constexpr bool kAccumulate = Accumulate_;
};

template <class Config>
struct ProductKernel {
  using Element = cutlass::bfloat16_t;
  using Out = typename Config::Out;
  using Left = cute::conditional_t<Config::kLeftTransposed, cutlass::layout::ColumnMajor, cutlass::layout::RowMajor>;
  using Added = cute::conditional_t<Config::kAccumulate, Out, void>;
  static constexpr int kAlignment = 8;
  static constexpr int kOutAlignment = 16 / sizeof(Out);
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, typename Config::TileShape, typename Config::ClusterShape,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, Added, cutlass::layout::RowMajor, kOutAlignment,
      Out, cutlass::layout::RowMajor, kOutAlignment, typename Config::Epilogue,
      cutlass::epilogue::fusion::LinearCombination<Out, float, Added, float>>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, Left, kAlignment, Element,
      cutlass::layout::RowMajor, kAlignment, float, typename Config::TileShape, typename Config::ClusterShape,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
      typename Config::Mainloop>::CollectiveOp;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<cutlass::gemm::kernel::GemmUniversal<
      cute::Shape<int, int, int, int>, Mainloop, Epilogue, typename Config::Scheduler>>;
};

enum class Raster { rows_first, columns_first };

// `splits`: of the sum, by StreamKScheduler; 1: as it sees fit. False where the workspace is too small.
template <class Config>
bool launch_product(const Product& problem, Raster raster, int splits, void* workspace, size_t workspace_bytes,
                    Stream stream) {
  using K = ProductKernel<Config>;
  using Gemm = typename K::Gemm;
  using Element = typename K::Element;
  typename Gemm::GemmKernel::StrideA left{};
  if constexpr (Config::kLeftTransposed) {
    cute::get<1>(left) = problem.left_pitch;
  } else {
    cute::get<0>(left) = problem.left_pitch;
  }
  typename Gemm::GemmKernel::StrideB right{};
  cute::get<1>(right) = problem.columns;
  typename Gemm::GemmKernel::StrideD out{};
  cute::get<0>(out) = problem.columns;
  auto* d = static_cast<typename Config::Out*>(problem.out);
  typename Gemm::Arguments arguments{
      cutlass::gemm::GemmUniversalMode::kGemm,
      {static_cast<int>(problem.rows), static_cast<int>(problem.columns), static_cast<int>(problem.inner), 1},
      {static_cast<const Element*>(problem.left), left, static_cast<const Element*>(problem.right), right},
      {{1.0F, Config::kAccumulate ? 1.0F : 0.0F}, Config::kAccumulate ? d : nullptr, out, d, out}};
  using Order = cutlass::gemm::kernel::detail::RasterOrderOptions;
  arguments.scheduler.raster_order = raster == Raster::rows_first ? Order::AlongM : Order::AlongN;
  arguments.scheduler.max_swizzle_size = 1;
  if constexpr (std::is_same_v<typename Config::Scheduler, cutlass::gemm::StreamKScheduler>) {
    arguments.scheduler.splits = splits;
  }
  arguments.hw_info.sm_count = multiprocessors();
  if (Gemm::get_workspace_size(arguments) > workspace_bytes) return false;
  Gemm gemm;
  require(gemm.initialize(arguments, workspace, stream) == cutlass::Status::kSuccess, "product: not initialised");
  require(gemm.run(stream) == cutlass::Status::kSuccess, "product: not launched");
  check_launch("product");
  return true;
}

}  // namespace regather::kernels::sm90
