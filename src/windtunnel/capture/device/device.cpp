// A `cuda` device without storage: streams, events and an allocator that hands out addresses nobody may read.
//
// A CPU build of PyTorch has an empty CUDA dispatch key. What is registered here fills it, so that tensors on `cuda` have true
// sizes, strides, storages and lifetimes. The library has to be loaded before torch is imported.
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/node.h>

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <optional>
#include <map>
#include <set>

#include "storage.hpp"

// The CPU build decides at compile time that there is no accelerator. These come before its own in the order of symbols.
namespace at::accelerator {
__attribute__((visibility("default"))) std::optional<c10::DeviceType> getAccelerator(bool) { return c10::DeviceType::CUDA; }
__attribute__((visibility("default"))) bool isAccelerator(c10::DeviceType type) { return type == c10::DeviceType::CUDA; }
}  // namespace at::accelerator

namespace capture {
namespace {

constexpr int kMostDevices = 64;
thread_local int device_now = 0;
thread_local int64_t stream_now[kMostDevices] = {0};
thread_local int32_t module_now = -1;
thread_local int quiet_depth = 0;
thread_local int away_depth = 0;
thread_local int64_t host_since = 0;
std::atomic<int> threads{0};
thread_local uint8_t thread_number = static_cast<uint8_t>(threads++);
std::atomic<int64_t> next_stream{1}, next_event{1};

// The thread's own time in nanoseconds: neither what others take of the machine nor waiting counts.
int64_t now() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}
thread_local int64_t left = now();
[[maybe_unused]] const int forked = pthread_atfork(nullptr, nullptr, [] {  // a rank's own time begins at 0
  left = now();
  host_since = 0;
});

}  // namespace

Log& the_log() {
  static Log* log = new Log;  // frees of the process's last tensors come after destructors of statics
  return *log;
}

int32_t Log::number_of(const std::string& text) {
  std::lock_guard<std::mutex> guard(lock);
  auto [place, added] = numbers_.emplace(text, static_cast<int32_t>(texts.size()));
  if (added) texts.push_back(text);
  return place->second;
}

void Log::add(Entry entry) {
  if (!on || is_quiet()) return;
  if (away_depth == 0) host_since += now() - left;
  entry.host = host_since;
  host_since = 0;
  entry.module = module_now;
  entry.thread = thread_number;
  entry.backward = torch::autograd::get_current_graph_task_id() >= 0;
  std::lock_guard<std::mutex> guard(lock);
  entries.push_back(entry);
  left = now();
}

size_t Log::count() {
  std::lock_guard<std::mutex> guard(lock);
  return entries.size();
}

size_t Log::keep_graph(size_t begin) {
  auto name = number_of("in a CUDA graph");
  std::lock_guard<std::mutex> guard(lock);
  graphs_.emplace_back();
  for (size_t i = begin; i < entries.size(); ++i) {
    auto& entry = entries[i];
    if (entry.kind == Kind::kAllocate || entry.kind == Kind::kFree || entry.kind == Kind::kMark) continue;
    graphs_.back().push_back(entry);
    entry.kind = Kind::kMark;
    entry.name = name;
  }
  return graphs_.size() - 1;
}

void Log::repeat(size_t graph) {
  Away away;
  if (!on || is_quiet()) return;
  std::lock_guard<std::mutex> guard(lock);
  std::unordered_map<int64_t, int64_t> calls;
  bool launches = true;  // one launch of the host, that of the graph
  for (Entry entry : graphs_.at(graph)) {
    if (entry.kind == Kind::kCall) {
      entry.a = calls[entry.a] = number_call();
    } else if (entry.kind == Kind::kCallWait && calls.count(entry.a)) {
      entry.a = calls[entry.a];
    } else if (entry.kind != Kind::kOperator && entry.kind != Kind::kRecord && entry.kind != Kind::kBlock) {
      continue;
    }
    entry.host = 0;
    entry.module = module_now;
    entry.thread = thread_number;
    if (!launches) entry.flag |= kReplayed;
    if (entry.kind == Kind::kOperator || entry.kind == Kind::kCall) launches = false;
    entries.push_back(entry);
  }
}

int64_t number_call() {
  static std::atomic<int64_t> next{0};
  return next++;
}

Away::Away(bool quiet) : quiet_(quiet) {
  if (away_depth++ == 0) host_since += now() - left;
  quiet_depth += quiet_;
}

Away::~Away() {
  quiet_depth -= quiet_;
  if (--away_depth == 0) left = now();
}

bool is_quiet() { return quiet_depth > 0; }
void set_module(int32_t module) { module_now = module; }
int32_t current_module() { return module_now; }
int64_t current_stream(int device) { return stream_now[device < 0 ? device_now : device]; }
int current_device() { return device_now; }
void set_current_device(int device) { device_now = device; }

namespace {

int index_of(c10::Device device) { return device.index() < 0 ? device_now : device.index(); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static c10::Stream stream(c10::Device device, int64_t id) {
    return c10::Stream(c10::Stream::UNSAFE, {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index_of(device))}, id);
  }
  static void add(Kind kind, int64_t stream, int64_t event) {
    Entry entry;
    entry.kind = kind;
    entry.stream = static_cast<int32_t>(stream);
    entry.a = event;
    the_log().add(entry);
  }

  c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    auto before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device_now)}; }
  void setDevice(c10::Device device) const override { uncheckedSetDevice(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) device_now = device.index();
  }
  c10::Stream getStream(c10::Device device) const override { return stream(device, stream_now[index_of(device)]); }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream(device, 0); }
  c10::Stream getNewStream(c10::Device device, int) const override { return stream(device, next_stream++); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return stream(device, next_stream++); }
  c10::Stream exchangeStream(c10::Stream given) const override {
    auto before = getStream(given.device());
    stream_now[given.device_index()] = given.id();
    return before;
  }
  void* getStreamNativeHandle(const c10::Stream given) const override { return reinterpret_cast<void*>(given.id()); }
  void record(void** event, const c10::Stream& given, const c10::DeviceIndex, const c10::EventFlag) const override {
    *event = reinterpret_cast<void*>(next_event++);  // a new version each time: who blocks on it waits for this one
    add(Kind::kRecord, given.id(), reinterpret_cast<int64_t>(*event));
  }
  void block(void* event, const c10::Stream& given) const override {
    if (event != nullptr) add(Kind::kBlock, given.id(), reinterpret_cast<int64_t>(event));
  }
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream& given) const override { add(Kind::kHostWait, given.id(), -1); }
  void synchronizeEvent(void* event) const override { add(Kind::kHostWait, 0, reinterpret_cast<int64_t>(event)); }
  void synchronizeDevice(const c10::DeviceIndex) const override { add(Kind::kHostWait, 0, -2); }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
  double elapsedTime(void*, void*, const c10::DeviceIndex) const override { return 1.0; }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(device_count()); }
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

}  // namespace

int& device_count() {
  static int count = 8;
  return count;
}

namespace {

std::mutex memory_lock;
int64_t live_bytes = 0, peak_bytes = 0;
uintptr_t next_address = uintptr_t{0x7f} << 40;
constexpr size_t kRound = 512;

void note(Kind kind, const Storage& storage) {
  Entry entry;
  entry.kind = kind;
  entry.stream = static_cast<int32_t>(current_stream());
  entry.a = storage.address;
  entry.b = storage.bytes;
  the_log().add(entry);
}

void release(void* context) {
  Away away;
  auto* storage = static_cast<Storage*>(context);
  {
    std::lock_guard<std::mutex> guard(memory_lock);
    live_bytes -= storage->bytes;
  }
  note(Kind::kFree, *storage);
  delete storage;
}

struct DeviceAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    Away away;
    auto device = c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device_now));
    if (bytes == 0) return {nullptr, device};
    auto* storage = new Storage;
    storage->bytes = static_cast<int64_t>(bytes);
    {
      std::lock_guard<std::mutex> guard(memory_lock);
      storage->address = static_cast<int64_t>(next_address);
      next_address += (bytes + kRound - 1) / kRound * kRound;
      live_bytes += storage->bytes;
      peak_bytes = std::max(peak_bytes, live_bytes);
    }
    note(Kind::kAllocate, *storage);
    return {reinterpret_cast<void*>(storage->address), storage, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, size_t) const override {}
};

// Page-locked memory is the host's own; the addresses are kept, since DDP checks them.
std::mutex pinned_lock;
std::set<const void*>& pinned() {
  static auto* addresses = new std::set<const void*>;
  return *addresses;
}

void unpin(void* address) {
  std::lock_guard<std::mutex> guard(pinned_lock);
  pinned().erase(address);
  std::free(address);
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* address = std::calloc(bytes + 1, 1);
    std::lock_guard<std::mutex> guard(pinned_lock);
    pinned().insert(address);
    return {address, address, &unpin, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &unpin; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};
PinnedAllocator pinned_allocator;

// Large tensors on the host, such as a model that is built there, share the same few pages over and over: they can be written and
// read, and hold no memory. Their values are anything.
constexpr size_t kPages = size_t{64} << 20;

size_t whole_pages(size_t bytes) { return (bytes + kPages - 1) / kPages * kPages; }

// Ranges by address; a range's context is its address, as raw allocations need.
std::mutex range_lock;
std::map<void*, size_t>& ranges() {
  static auto* sizes = new std::map<void*, size_t>;
  return *sizes;
}
c10::Allocator* own_allocator = nullptr;

void release_host(void* address) {
  {
    std::lock_guard<std::mutex> guard(range_lock);
    auto place = ranges().find(address);
    if (place != ranges().end()) {
      munmap(address, place->second);
      ranges().erase(place);
      return;
    }
  }
  own_allocator->raw_deleter()(address);
}

struct HostAllocator final : c10::Allocator {
  HostAllocator() : file(memfd_create("windtunnel", MFD_CLOEXEC)) {
    if (file >= 0 && ftruncate(file, static_cast<off_t>(kPages)) != 0) file = -1;
  }
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes < kPages || file < 0) return own_allocator->allocate(bytes);
    auto size = whole_pages(bytes);
    auto* range = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) return own_allocator->allocate(bytes);
    for (size_t at = 0; at < size; at += kPages) {
      auto* place = static_cast<char*>(range) + at;
      if (mmap(place, kPages, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
        munmap(range, size);
        return own_allocator->allocate(bytes);
      }
    }
    std::lock_guard<std::mutex> guard(range_lock);
    ranges()[range] = size;
    return {range, range, &release_host, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_host; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }

  int file;
};

}  // namespace

c10::Allocator& device_allocator() {
  static DeviceAllocator allocator;
  return allocator;
}

Memory memory_now() {
  std::lock_guard<std::mutex> guard(memory_lock);
  return {live_bytes, peak_bytes};
}

void reset_peak() {
  std::lock_guard<std::mutex> guard(memory_lock);
  peak_bytes = live_bytes;
}

namespace {
[[maybe_unused]] const bool registered = [] {
  c10::SetAllocator(c10::DeviceType::CUDA, &device_allocator());
  own_allocator = c10::GetCPUAllocator();
  static HostAllocator host;
  c10::SetCPUAllocator(&host, 100);
  return true;
}();
}  // namespace

}  // namespace capture

// The registry asks for a class of this name.
struct CUDAHooks : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(capture::device_count()); }
  int getNumGPUs() const override { return capture::device_count(); }
  c10::DeviceIndex current_device() const override { return static_cast<c10::DeviceIndex>(capture::current_device()); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { capture::set_current_device(device); }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  void deviceSynchronize(c10::DeviceIndex) const override { capture::Guard().synchronizeDevice(0); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &capture::pinned_allocator; }
  bool isPinnedPtr(const void* address) const override {
    std::lock_guard<std::mutex> guard(capture::pinned_lock);
    return capture::pinned().count(address) > 0;
  }
  c10::Allocator* getCUDADeviceAllocator() const override { return &capture::device_allocator(); }
  c10::Device getDeviceFromPtr(void*) const override { return {c10::DeviceType::CUDA, 0}; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override { return at::detail::getDefaultCPUGenerator(); }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return at::detail::createCPUGenerator(); }
};
namespace at {
using ::CUDAHooks;
REGISTER_CUDA_HOOKS(CUDAHooks)
}  // namespace at
