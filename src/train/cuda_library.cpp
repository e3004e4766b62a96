#include "train/cuda_library.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <filesystem>

#include "base/error.h"
#include "kernels/op/device.h"

namespace regather::train {
namespace {

const CudaLibrary& load() {
  const std::filesystem::path file = std::filesystem::read_symlink("/proc/self/exe").parent_path() / kCudaLibrary;
  // Before anything asks torch for CUDA: it asks itself once, and remembers.
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    throw UsageError(
        fmt::format("--device cuda: {}: expected the library of the build with REGATHER_CUDA (preset cuda) "
                    "beside the program, and torch's CUDA libraries where the loader finds them",
                    ::dlerror()));
  }
  const auto get = reinterpret_cast<const CudaLibrary* (*)()>(::dlsym(library, "regather_cuda"));
  REGATHER_CHECK(get != nullptr, "cuda", "{} has no regather_cuda", file.string());
  return *get();
}

}  // namespace

const CudaLibrary& use_cuda(int rank) {
  static const CudaLibrary& library = [&]() -> const CudaLibrary& {
    const CudaLibrary& loaded = load();
    kernels::op::use_cuda(*loaded.kernels);
    return loaded;
  }();
  const c10::impl::VirtualGuardImpl cuda(at::kCUDA);
  const int gpus = cuda.deviceCount();
  if (gpus == 0)
    throw UsageError("--device cuda: this machine has no GPU that CUDA can use; expected one, or --device cpu");
  cuda.setDevice({at::kCUDA, static_cast<c10::DeviceIndex>(rank % gpus)});
  return library;
}

at::Device current_gpu() { return c10::impl::VirtualGuardImpl(at::kCUDA).getDevice(); }

}  // namespace regather::train
