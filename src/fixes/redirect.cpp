#include "fixes/redirect.h"

#include "shard/backend.h"

namespace regather::fixes {

at::Tensor Redirect::enter(shard::Backend& backend, const std::function<at::Tensor()>& body) {
  return backend.forward(body);
}

}  // namespace regather::fixes
