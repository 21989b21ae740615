// Many runs, spread over threads.
#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "faults/faults.h"
#include "faults/replica.h"

namespace wt::faults {

namespace {

void check(const Law& law, const char* what, bool may_be_never = false) {
  if (!std::isfinite(law.mean) || (law.mean < 0.0 && !may_be_never)) fail(what, ": a mean that is finite and not negative");
  if (!std::isfinite(law.spread) || law.spread < 0.0) fail(what, ": a spread that is finite and not negative");
  if (law.shape == Shape::uniform && law.spread > 1.0) fail(what, ": half a width of at most the mean");
}

void check(const Task& task, std::span<const Kind> kinds) {
  if (!(task.work > 0.0) || !(task.horizon > 0.0) || !(task.interval > 0.0)) fail("work, horizon and interval are above zero");
  if (!std::isfinite(task.horizon)) fail("the horizon is finite, so that every run ends");
  for (const double seconds : {task.save, task.flush, task.drag}) {
    if (!std::isfinite(seconds) || seconds < 0.0) fail("save, flush and drag are finite and not negative");
  }
  if (task.spares < 0) fail("spares are not negative");
  check(task.swap, "swap");
  check(task.spare_repair, "spare_repair");
  check(task.queue, "queue", true);
  check(task.init, "init");
  check(task.load, "load");
  for (const Kind& kind : kinds) {
    if (!std::isfinite(kind.rate) || kind.rate < 0.0) fail("a rate is finite and not negative");
    if (!(kind.automatic >= 0.0 && kind.automatic <= 1.0)) fail("a share of automatic recoveries lies in [0, 1]");
    if (!(kind.returns >= 0.0 && kind.returns < 1.0)) fail("a share of faults that return lies in [0, 1)");
    if (!std::isfinite(kind.slows) || kind.slows < 1.0) fail("a slow place takes at least as long as a good one");
    for (const Law* law : {&kind.gap, &kind.detect, &kind.diagnose, &kind.by_hand, &kind.repair, &kind.after}) check(*law, "kind");
  }
}

}  // namespace

Outcome run(const Task& task, std::span<const Kind> kinds, std::uint64_t seed, std::int64_t first, std::int64_t count,
            int threads) {
  check(task, kinds);
  if (first < 0 || count < 0 || threads < 1) fail("runs and threads: at least one thread, no negative numbers");
  const auto runs = static_cast<std::size_t>(count);
  Outcome out;
  out.wall.resize(runs);
  out.parts.resize(runs * kParts);
  out.count.resize(runs * kinds.size());
  out.done.resize(runs);
  std::atomic<std::size_t> taken{0};
  std::mutex guard;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      for (std::size_t r = taken++; r < runs; r = taken++) {
        Replica replica(task, kinds, Random(seed, static_cast<std::uint64_t>(first) + r));
        replica.run();
        out.wall[r] = replica.wall();
        out.done[r] = replica.done() ? 1 : 0;
        std::copy(replica.parts().begin(), replica.parts().end(), out.parts.begin() + static_cast<std::ptrdiff_t>(r * kParts));
        std::copy(replica.count().begin(), replica.count().end(),
                  out.count.begin() + static_cast<std::ptrdiff_t>(r * kinds.size()));
      }
    } catch (...) {
      const std::scoped_lock lock(guard);
      failure = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  for (int t = 1; t < std::min<std::int64_t>(threads, count); ++t) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  if (failure) std::rethrow_exception(failure);
  return out;
}

}  // namespace wt::faults
