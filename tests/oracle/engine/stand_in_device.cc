#include "tests/oracle/engine/stand_in_device.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>

#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain::oracle {
namespace {

constexpr at::DeviceType kType = at::kPrivateUse1;
// No address of a process has this bit, so the host faults on one that does.
constexpr std::uintptr_t kElsewhere = std::uintptr_t{1} << 62U;

std::atomic<std::int64_t> live_bytes{0};
std::atomic<int> num_devices{kStandIns};
thread_local c10::DeviceIndex current = 0;

void* there(void* address) {
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(address) | kElsewhere);
}

void* here(const void* address) {
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(address) & ~kElsewhere);
}

// ---- Memory

struct Block {
  void* memory = nullptr;
  std::size_t bytes = 0;
  at::Device device;
};

void report(const Block& block, std::int64_t change) {
  live_bytes += change;
  c10::reportMemoryUsageToProfiler(
      block.memory, change, static_cast<std::size_t>(live_bytes.load()), 0, block.device);
}

void release(void* context) {
  auto* block = static_cast<Block*>(context);
  report(*block, -static_cast<std::int64_t>(block->bytes));
  std::free(block->memory);
  delete block;
}

class Memory : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const at::Device device(kType, current);
    if (bytes == 0) {
      return {nullptr, device};
    }
    void* memory = std::malloc(bytes);
    if (memory == nullptr) {
      throw std::bad_alloc();
    }
    auto* block = new Block{memory, bytes, device};
    report(*block, static_cast<std::int64_t>(bytes));
    return {there(memory), block, &release, device};
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(here(to), here(from), bytes);
  }
};

Memory memory;

// ---- Devices, their one stream each, and events

using Clock = std::chrono::steady_clock;

class Guard : public c10::impl::DeviceGuardImplInterface {
 public:
  [[nodiscard]] at::DeviceType type() const override { return kType; }
  [[nodiscard]] at::Device exchangeDevice(at::Device device) const override {
    const at::Device before = getDevice();
    setDevice(device);
    return before;
  }
  [[nodiscard]] at::Device getDevice() const override { return {kType, current}; }
  void setDevice(at::Device device) const override {
    TORCH_CHECK(device.index() < num_devices, "there is no device ", device);
    uncheckedSetDevice(device);
  }
  void uncheckedSetDevice(at::Device device) const noexcept override {
    if (device.has_index()) {
      current = device.index();
    }
  }
  [[nodiscard]] c10::Stream getStream(at::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT,
                       {kType, device.has_index() ? device.index() : current});
  }
  [[nodiscard]] c10::Stream getDefaultStream(at::Device device) const override {
    return getStream(device);
  }
  [[nodiscard]] c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  [[nodiscard]] c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(num_devices.load());
  }
  void record(void** event,
              const c10::Stream& /*stream*/,
              const c10::DeviceIndex /*index*/,
              const c10::EventFlag /*flag*/) const override {
    if (*event == nullptr) {
      *event = new Clock::time_point;
    }
    *static_cast<Clock::time_point*>(*event) = Clock::now();
  }
  void destroyEvent(void* event, const c10::DeviceIndex /*index*/) const noexcept override {
    delete static_cast<Clock::time_point*>(event);
  }
  void block(void* /*event*/, const c10::Stream& /*stream*/) const override {}
  [[nodiscard]] bool queryEvent(void* /*event*/) const override { return true; }
  void synchronizeEvent(void* /*event*/) const override {}
  [[nodiscard]] bool queryStream(const c10::Stream& /*stream*/) const override { return true; }
  void synchronizeStream(const c10::Stream& /*stream*/) const override {}
  void synchronizeDevice(const c10::DeviceIndex /*index*/) const override {}
  double elapsedTime(void* begin, void* end, const c10::DeviceIndex /*index*/) const override {
    return std::chrono::duration<double, std::milli>(*static_cast<Clock::time_point*>(end) -
                                                     *static_cast<Clock::time_point*>(begin))
        .count();
  }
};

struct Hooks : at::PrivateUse1HooksInterface {
  [[nodiscard]] bool isBuilt() const override { return true; }
  [[nodiscard]] bool isAvailable() const override { return true; }
  [[nodiscard]] bool hasPrimaryContext(c10::DeviceIndex /*index*/) const override { return true; }
};

// ---- Operations

// A tensor of the host with the memory of one of either kind.
at::Tensor seen_from_here(const at::Tensor& tensor) {
  if (tensor.is_cpu()) {
    return tensor;
  }
  return at::from_blob(here(tensor.const_data_ptr()),
                       tensor.sizes(),
                       tensor.strides(),
                       at::TensorOptions(tensor.scalar_type()));
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool /*non_blocking*/) {
  if (target.numel() > 0) {
    seen_from_here(target).copy_(seen_from_here(source));
  }
  return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  if (target.sizes() != source.sizes()) {
    target.resize_(source.sizes());
  }
  return copy_from(source, target, false);
}

at::Device chosen(std::optional<at::Device> device) {
  const at::Device asked = device.value_or(at::Device(kType));
  return {kType, asked.has_index() ? asked.index() : current};
}

class OnDevice {
 public:
  explicit OnDevice(at::Device device) : before_(current) { current = device.index(); }
  ~OnDevice() { current = before_; }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  c10::DeviceIndex before_;
};

at::Tensor empty(at::IntArrayRef shape,
                 std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> /*layout*/,
                 std::optional<at::Device> device,
                 std::optional<bool> /*pinned*/,
                 std::optional<at::MemoryFormat> format) {
  const OnDevice there(chosen(device));
  return at::detail::empty_generic(shape,
                                   &memory,
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype),
                                   format);
}

at::Tensor empty_strided(at::IntArrayRef shape,
                         at::IntArrayRef strides,
                         std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> /*layout*/,
                         std::optional<at::Device> device,
                         std::optional<bool> /*pinned*/) {
  const OnDevice there(chosen(device));
  return at::detail::empty_strided_generic(shape,
                                           strides,
                                           &memory,
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

const at::Tensor& resize(const at::Tensor& tensor,
                         at::IntArrayRef shape,
                         std::optional<at::MemoryFormat> /*format*/) {
  const OnDevice there(tensor.device());
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const std::size_t needed =
      at::detail::computeStorageNbytesContiguous(shape, tensor.itemsize(), tensor.storage_offset());
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  if (needed > storage->nbytes()) {
    c10::DataPtr grown = memory.allocate(needed);
    memory.copy_data(grown.mutable_get(), storage->data(), storage->nbytes());
    storage->set_data_ptr_noswap(std::move(grown));
    storage->set_nbytes(needed);
  }
  impl->set_sizes_contiguous(shape);
  return tensor;
}

at::Scalar local_scalar(const at::Tensor& tensor) {
  return seen_from_here(tensor).item();
}

// As with a GPU: a number of the host may take part, a tensor may not, nor one of another device.
void check_places(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  std::optional<at::Device> device;
  const auto check = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || (tensor.is_cpu() && tensor.dim() == 0)) {
      return;
    }
    const at::Device found = device.value_or(tensor.device());
    ENTRAIN_INVARIANT(!tensor.is_cpu() && found == tensor.device(),
                      concat(op.schema().name(),
                             ": a tensor on ",
                             tensor.device().str(),
                             " among those on ",
                             found.str()));
    device = found;
  };
  for (const c10::IValue& value : torch::jit::last(stack, op.schema().arguments().size())) {
    if (value.isTensor()) {
      check(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) {
        check(tensor);
      }
    } else if (value.isOptionalTensorList()) {
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        check(tensor.value_or(at::Tensor()));
      }
    }
  }
}

void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  check_places(op, *stack);
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

template <class Operation>
void add(torch::Library& library, const char* name, Operation* operation) {
  library.impl(name, torch::CppFunction::makeFromUnboxedFunction(operation));
}

// Only where the first stand_in_device() asks for it: a program that does not knows of none.
struct Registration {
  Registration()
      : operations(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__),
        fallback(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__) {
    c10::register_privateuse1_backend(kStandInName);
    const c10::impl::DeviceGuardImplRegistrar guard(kType, new Guard);
    at::RegisterPrivateUse1HooksInterface(new Hooks);
    c10::SetAllocator(kType, &memory);
    add(operations, "empty.memory_format", &empty);
    add(operations, "empty_strided", &empty_strided);
    add(operations, "_copy_from", &copy_from);
    add(operations, "_copy_from_and_resize", &copy_from_and_resize);
    add(operations, "_local_scalar_dense", &local_scalar);
    add(operations, "resize_", &resize);
    add(operations, "view", &at::native::view);
    add(operations, "as_strided", &at::native::as_strided_tensorimpl);
    add(operations, "_reshape_alias", &at::native::_reshape_alias);
    fallback.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
  }
  torch::Library operations;
  torch::Library fallback;
};

}  // namespace

at::Device stand_in_device(int index) {
  static const Registration registration;
  return {kType, static_cast<c10::DeviceIndex>(index)};
}

void set_stand_in_count(int count) {
  num_devices = count;
}

std::int64_t stand_in_bytes() {
  return live_bytes;
}

}  // namespace entrain::oracle
