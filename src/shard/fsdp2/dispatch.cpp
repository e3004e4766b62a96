// The operators of sharded tensors: a fallback that runs what has a rule on the shards and refuses the rest.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "shard/fsdp2/sharded_impl.h"

namespace regather::shard {
namespace {

using torch::jit::Stack;

// Whole-tensor operators whose result on the rows is the rows of the result, whatever the overload without out.
const std::unordered_set<std::string_view>& row_wise() {
  static const std::unordered_set<std::string_view> names{
      "_to_copy", "abs",   "add",    "add_", "addcdiv", "addcdiv_",   "addcmul",   "addcmul_",   "alias", "clamp_min",
      "clone",    "copy_", "detach", "div",  "div_",    "empty_like", "fill_",     "full_like",  "lerp",  "lerp_",
      "maximum",  "mul",   "mul_",   "neg",  "neg_",    "ones_like",  "pow",       "reciprocal", "rsqrt", "sign",
      "sqrt",     "sqrt_", "sub",    "sub_", "zero_",   "zeros_like", "clamp_min_"};
  return names;
}

// Makers of a tensor of given sizes; with the rule only where the sizes are those of the sharded tensor.
bool makes_new(std::string_view name) {
  return name == "new_empty_strided" || name == "new_empty" || name == "new_zeros";
}

// "aten::mul_" and "Tensor" as Python writes them: aten.mul_.Tensor.
std::string python_name(const c10::OperatorHandle& op) {
  const std::string& name = op.schema().name();
  const std::string& overload = op.schema().overload_name();
  const size_t colons = name.find("::");
  return fmt::format("{}.{}.{}", name.substr(0, colons), colons == std::string::npos ? "" : name.substr(colons + 2),
                     overload.empty() ? "default" : overload);
}

std::string_view base_name(const c10::OperatorHandle& op) {
  std::string_view name = op.schema().name();
  return name.starts_with("aten::") ? name.substr(6) : std::string_view();
}

// What an operator was given: the sharded tensors, and whether a plain one with more than one element is among them.
struct Operands {
  std::vector<const ShardedImpl*> sharded;
  bool in_list = false;
  bool plain = false;

  void add(const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    if (const ShardedImpl* impl = ShardedImpl::of(tensor)) {
      sharded.push_back(impl);
    } else if (tensor.numel() != 1) {
      plain = true;
    }
  }
  void add(const c10::IValue& value) {
    if (value.isTensor()) return add(value.toTensor());
    if (!value.isList()) return;
    for (const c10::IValue& element : value.toListRef()) {
      if (!element.isTensor()) continue;
      in_list = true;
      add(element.toTensor());
    }
  }
};

bool same_layout(const Operands& operands) {
  const ShardedImpl& first = *operands.sharded.front();
  for (const ShardedImpl* other : operands.sharded) {
    if (other->sizes() != first.sizes() || other->shard_dimension() != first.shard_dimension()) return false;
  }
  return true;
}

// The arguments with shards in place of sharded tensors.
Stack on_shards(const std::vector<c10::IValue>& arguments) {
  Stack stack;
  for (const c10::IValue& argument : arguments) {
    const ShardedImpl* impl = argument.isTensor() ? ShardedImpl::of(argument.toTensor()) : nullptr;
    stack.push_back(impl != nullptr ? c10::IValue(impl->local()) : argument);
  }
  return stack;
}

bool has_out(const c10::FunctionSchema& schema) {
  for (const c10::Argument& argument : schema.arguments()) {
    if (argument.is_out()) return true;
  }
  return false;
}

// An in-place operator hands back the tensor that it was given, not another one around the same shard.
bool writes_first(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  return !arguments.empty() && arguments[0].alias_info() != nullptr && arguments[0].alias_info()->isWrite();
}

c10::IValue run_row_wise(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                         const Operands& operands) {
  Stack stack = on_shards(arguments);
  op.callBoxed(&stack);
  if (writes_first(op.schema())) return arguments[0];
  return operands.sharded.front()->alike(stack.back().toTensor());
}

c10::IValue transpose(const ShardedImpl& impl) {
  if (impl.dim() < 2) return impl.alike(impl.local());
  const std::vector<int64_t> sizes{impl.size(1), impl.size(0)};
  const std::vector<int64_t> strides{impl.stride(1), impl.stride(0)};
  return at::detail::make_tensor<ShardedImpl>(impl.local().t(), sizes, strides, 1 - impl.shard_dimension(),
                                              impl.world());
}

// Only for the whole sizes in row-major order: anything else would need another way to share it out.
bool makes_alike(const std::vector<c10::IValue>& arguments, const ShardedImpl& impl) {
  return arguments[0].isTensor() && arguments[1].toIntVector() == impl.sizes().vec() && impl.shard_dimension() == 0 &&
         impl.is_contiguous();
}

c10::IValue make_new(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                     const ShardedImpl& impl) {
  std::vector<c10::IValue> local = arguments;
  local[0] = impl.local();
  local[1] = impl.local().sizes();
  const bool strided = op.schema().arguments()[2].name() == "stride";
  if (strided) local[2] = impl.local().contiguous().strides();
  Stack stack(local.begin(), local.end());
  op.callBoxed(&stack);
  return impl.alike(stack.back().toTensor());
}

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const size_t count = op.schema().arguments().size();
  const std::vector<c10::IValue> arguments = torch::jit::pop(*stack, count);
  Operands operands;
  for (const c10::IValue& argument : arguments) operands.add(argument);
  TORCH_CHECK(!operands.sharded.empty(), "regather: ", python_name(op), " met no sharded tensor");
  TORCH_CHECK(!operands.plain, python_name(op),
              " got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling "
              "distributed operators!");

  const ShardedImpl& first = *operands.sharded.front();
  const std::string_view name = base_name(op);
  const bool simple = !operands.in_list && !has_out(op.schema()) && op.schema().returns().size() == 1;
  if (simple && row_wise().contains(name) && same_layout(operands) &&
      (!writes_first(op.schema()) || ShardedImpl::of(arguments[0].toTensor()) != nullptr)) {
    stack->push_back(run_row_wise(op, arguments, operands));
  } else if (simple && name == "t") {
    stack->push_back(transpose(first));
  } else if (simple && makes_new(name) && makes_alike(arguments, first)) {
    stack->push_back(make_new(op, arguments, first));
  } else {
    TORCH_CHECK(false, python_name(op), " has no sharding rule for these operands (the first sharded one is ",
                first.sizes(), ", by dimension ", first.shard_dimension(),
                "): read the parameter inside its unit's forward, or take its full_tensor()");
  }
}

}  // namespace

void install_sharding_rules() {
  static const c10::RegistrationHandleRAII handle = c10::Dispatcher::singleton().registerFallback(
      c10::DispatchKey::Fake, c10::KernelFunction::makeFromBoxedFunction<&fallback>(), "regather's sharded tensors");
  static_cast<void>(handle);
}

}  // namespace regather::shard
