// The result of a run. Seconds from the start of the step; rows of instances as in the program.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace wt::exec {

// The cause that determined an event's start.
enum class Cause : std::uint8_t {
  kBegin = 0,    // the start of the step
  kStream = 1,   // the operator before it on its stream
  kWait = 2,     // an instance that it waits for (or the repetition before it, with kJoin)
  kInner = 3,    // an operator of its own template
  kHost = 4,     // the host had not enqueued it yet
  kWindow = 5,   // the host could not enqueue it: the queue to the device was full
  kPartner = 6,  // the last participant of a rendezvous to post
};

enum class HopKind : std::uint8_t { kOp = 0, kTransfer = 1, kHost = 2 };

// The longest chain, from the start of the step to its end; seconds add up to the makespan.
struct Path {
  std::vector<std::int32_t> rank, instance, op;
  std::vector<std::uint8_t> kind, cause;
  std::vector<double> seconds;
};

// Elements are left as they are when a vector grows: what is written anyway needs no zeros first.
template <class T>
struct Unset : std::allocator<T> {
  template <class U>
  struct rebind {
    using other = Unset<U>;
  };
  template <class U>
  void construct(U* at) noexcept {
    ::new (static_cast<void*>(at)) U;
  }
  template <class U, class... Args>
  void construct(U* at, Args&&... args) {
    ::new (static_cast<void*>(at)) U(std::forward<Args>(args)...);
  }
};

using Times = std::vector<double, Unset<double>>;

// Times of the operators and rendezvous of the recorded ranks, in program order.
struct Record {
  Times start, end;
};

struct Timeline {
  double makespan = 0.0;
  std::int64_t ops = 0;
  std::int64_t recalled = 0;  // of these, operators of instances that were not walked through
  std::int32_t streams = 1;
  std::vector<std::int32_t> outcome;         // [I] instances of one number went alike from their first operator on; -1: not known
  std::vector<double> begin, end, transfer;  // [I]; transfer is NaN for instances of a template
  std::vector<double> host;                  // [I] when the host reached the instance
  std::vector<double> busy;                  // [R, streams, categories]
  std::vector<double> idle;                  // [R, categories + 2] stream 0, by cause; then host, then tail
  std::vector<double> stretch;               // [R, categories] seconds that the tax added, contained in busy
  std::vector<double> rank_end, host_end;    // [R]
  Path path;
  Record record;
};

}  // namespace wt::exec
