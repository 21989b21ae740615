// Groups whose calls are recorded and move nothing. A call runs on its group's own stream, as NCCL's do: it begins after what the
// current stream holds, and `wait` lets the current stream wait for it.
#include <ATen/core/ivalue.h>
#include <c10/core/StreamGuard.h>
#include <torch/csrc/distributed/c10d/FakeProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include "groups.hpp"
#include "storage.hpp"

namespace capture {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

struct Recorded final : c10d::FakeWork {
  Recorded(int64_t call, int64_t stream, Tensors outputs) : call(call), stream(stream), outputs(std::move(outputs)) {}

  bool wait(std::chrono::milliseconds) override {
    if (call >= 0) {
      Away away;
      Entry entry;
      entry.kind = Kind::kCallWait;
      entry.stream = static_cast<int32_t>(current_stream());
      entry.a = call;
      the_log().add(entry);
    }
    return true;
  }
  void synchronize() override { wait(kNoTimeout); }
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  std::vector<Tensor> result() override { return outputs; }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto type = c10::ListType::create(c10::TensorType::get());
    std::vector<c10::Device> devices;
    if (call >= 0) devices.push_back(outputs[0].device());
    auto future = c10::make_intrusive<c10::ivalue::Future>(type, devices);
    if (call >= 0) {  // whoever waits for the future waits for the group's stream
      c10::StreamGuard guard(c10::Stream(c10::Stream::UNSAFE, outputs[0].device(), stream));
      future->markCompleted(c10::IValue(outputs));
    } else {
      future->markCompleted(c10::IValue(outputs));
    }
    return future;
  }

  int64_t call, stream;
  Tensors outputs;
};

class Group final : public c10d::FakeProcessGroup {
 public:
  Group(int rank, int size, int32_t number)
      : FakeProcessGroup(rank, size, c10::make_intrusive<Options>()), number_(number), stream_(kStreams + number) {}

  const std::string getBackendName() const override { return "nccl"; }
  bool supportsCoalescing() const override { return true; }

  c10::intrusive_ptr<c10d::Work> broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return call("broadcast", bytes_of(tensors), tensors, options.asyncOp, options.rootRank);
  }
  c10::intrusive_ptr<c10d::Work> allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return call("all_reduce", bytes_of(tensors), tensors, options.asyncOp);
  }
  c10::intrusive_ptr<c10d::Work> allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return call("all_reduce", bytes_of(tensors), tensors, options.asyncOp);
  }
  c10::intrusive_ptr<c10d::Work> reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return call("reduce", bytes_of(tensors), tensors, options.asyncOp, options.rootRank);
  }
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                           const c10d::AllgatherOptions& options) override {
    copy([&] { FakeProcessGroup::allgather(outputs, inputs, options); });
    return call("all_gather", bytes_of(outputs[0]), outputs[0], options.asyncOp);
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(Tensor& output, Tensor& input, const c10d::AllgatherOptions& options) override {
    copy([&] {  // by elements: shapes need not agree
      auto into = output.view(-1), part = input.reshape(-1);
      for (int i = 0; i < size_; ++i) into.narrow(0, i * part.numel(), part.numel()).copy_(part);
    });
    return call("all_gather", bytes_of({output}), {output}, options.asyncOp);
  }
  c10::intrusive_ptr<c10d::Work> allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                 const c10d::AllgatherOptions& options) override {
    copy([&] { FakeProcessGroup::allgather_into_tensor_coalesced(outputs, inputs, options); });
    return call("all_gather", bytes_of(outputs), outputs, options.asyncOp);
  }
  c10::intrusive_ptr<c10d::Work> reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                const c10d::ReduceScatterOptions& options) override {
    copy([&] { FakeProcessGroup::reduce_scatter(outputs, inputs, options); });
    int64_t bytes = 0;
    for (const auto& list : inputs) bytes += bytes_of(list);
    return call("reduce_scatter", bytes, outputs, options.asyncOp);
  }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(Tensor& output, Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override {
    copy([&] { output.view(-1).copy_(input.reshape(-1).narrow(0, rank_ * output.numel(), output.numel())); });
    return call("reduce_scatter", bytes_of({input}), {output}, options.asyncOp);
  }
  c10::intrusive_ptr<c10d::Work> reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                 const c10d::ReduceScatterOptions& options) override {
    copy([&] { FakeProcessGroup::reduce_scatter_tensor_coalesced(outputs, inputs, options); });
    return call("reduce_scatter", bytes_of(inputs), outputs, options.asyncOp);
  }
  c10::intrusive_ptr<c10d::Work> alltoall_base(Tensor& output, Tensor& input, std::vector<int64_t>& received,
                                               std::vector<int64_t>& sent, const c10d::AllToAllOptions& options) override {
    c10d::checkSplitSizes(sent, input, size_);
    c10d::checkSplitSizes(received, output, size_);
    if (input.nbytes() == output.nbytes()) copy([&] { output.view(-1).copy_(input.view(-1)); });
    return call("all_to_all", bytes_of({input}), {output}, options.asyncOp);
  }
  c10::intrusive_ptr<c10d::Work> alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    return call("all_to_all", bytes_of(inputs), outputs, options.asyncOp);
  }
  c10::intrusive_ptr<c10d::Work> gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                        const c10d::GatherOptions& options) override {
    copy([&] { FakeProcessGroup::gather(outputs, inputs, options); });
    return call("gather", bytes_of(inputs) * size_, inputs, options.asyncOp, options.rootRank);
  }
  c10::intrusive_ptr<c10d::Work> scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                         const c10d::ScatterOptions& options) override {
    copy([&] { FakeProcessGroup::scatter(outputs, inputs, options); });
    return call("scatter", bytes_of(outputs) * size_, outputs, options.asyncOp, options.rootRank);
  }
  c10::intrusive_ptr<c10d::Work> send(Tensors& tensors, int peer, int) override {
    return call("send", bytes_of(tensors), tensors, true, peer);
  }
  c10::intrusive_ptr<c10d::Work> recv(Tensors& tensors, int peer, int) override {
    return call("recv", bytes_of(tensors), tensors, true, peer);
  }
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions&) override {
    Away away;
    Tensors one{at::empty({1}, at::TensorOptions().dtype(at::kFloat).device(at::kCUDA))};
    auto work = call("all_reduce", 4, one, false);
    Entry entry;
    entry.kind = Kind::kHostWait;
    entry.a = -1;
    entry.stream = static_cast<int32_t>(stream_);
    the_log().add(entry);
    return work;
  }

  // Between these two, calls are one: NCCL's group calls.
  void startCoalescing() override { together_ = true; }
  c10::intrusive_ptr<c10d::Work> endCoalescing() override {
    together_ = false;
    auto work = last_ ? last_ : c10::make_intrusive<Recorded>(-1, 0, Tensors{});
    last_.reset();
    return work;
  }

 private:
  static int64_t bytes_of(const Tensors& tensors) {
    int64_t bytes = 0;
    for (const auto& tensor : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
    return bytes;
  }

  template <typename Copy>
  static void copy(const Copy& copying) {
    Away quiet(true);
    at::AutoDispatchBelowAutograd below;
    copying();
  }

  c10::intrusive_ptr<Recorded> call(const char* name, int64_t bytes, Tensors outputs, bool asynchronous, int64_t peer = -1) {
    Away away;
    if (outputs.empty() || !outputs[0].device().is_cuda()) return c10::make_intrusive<Recorded>(-1, 0, std::move(outputs));
    auto& log = the_log();
    Entry entry;
    entry.kind = Kind::kCall;
    entry.name = log.number_of(name);
    entry.a = number_call();
    entry.b = bytes;
    entry.c = (int64_t{number_} << 32) | static_cast<int64_t>(peer + 1);
    entry.signature = static_cast<int32_t>(current_stream());
    entry.stream = static_cast<int32_t>(stream_);
    entry.flag = static_cast<uint8_t>((asynchronous ? 1 : 0) | (together_ ? 2 : 0));
    log.add(entry);
    auto work = c10::make_intrusive<Recorded>(entry.a, stream_, std::move(outputs));
    if (together_) last_ = work;
    return work;
  }

  static constexpr int64_t kStreams = 1 << 20;  // of groups, apart from those that a script makes
  int32_t number_;
  int64_t stream_;
  bool together_ = false;
  c10::intrusive_ptr<Recorded> last_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_group(int rank, int size, int32_t number) {
  return c10::make_intrusive<Group>(rank, size, number);
}

}  // namespace capture

namespace {
// DDP times its buckets by events of the device.
struct NoTimer final : c10d::Timer {
  explicit NoTimer(c10::Device) {}
  std::optional<int64_t> measureDifference(Event, Event) override { return 1; }
};
}  // namespace
namespace c10d {
C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::kCUDA, ::NoTimer)
}
