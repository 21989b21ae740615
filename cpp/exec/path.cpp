// Reads the trail: the critical path, walked back from the last end.
#include <algorithm>

#include "exec/book.h"

namespace wt::exec {
namespace {

// Hops from the end of the step to its start; a hop joins the one before it if both are operators of one instance.
class PathBuilder {
 public:
  void add(std::int32_t rank, std::int32_t instance, std::int32_t op, HopKind kind, Cause cause, double seconds) {
    if (kind == HopKind::kOp && !path_.rank.empty() && path_.rank.back() == rank && path_.instance.back() == instance &&
        path_.kind.back() == static_cast<std::uint8_t>(HopKind::kOp)) {
      path_.op.back() = op;
      path_.cause.back() = static_cast<std::uint8_t>(cause);
      path_.seconds.back() += seconds;
      return;
    }
    if (kind == HopKind::kHost && seconds <= 0.0) return;
    path_.rank.push_back(rank);
    path_.instance.push_back(instance);
    path_.op.push_back(op);
    path_.kind.push_back(static_cast<std::uint8_t>(kind));
    path_.cause.push_back(static_cast<std::uint8_t>(cause));
    path_.seconds.push_back(seconds);
  }
  Path take() {
    std::reverse(path_.rank.begin(), path_.rank.end());
    std::reverse(path_.instance.begin(), path_.instance.end());
    std::reverse(path_.op.begin(), path_.op.end());
    std::reverse(path_.kind.begin(), path_.kind.end());
    std::reverse(path_.cause.begin(), path_.cause.end());
    std::reverse(path_.seconds.begin(), path_.seconds.end());
    return std::move(path_);
  }

 private:
  Path path_;
};

}  // namespace

Path Book::critical_path(double makespan) const {
  PathBuilder path;
  const auto last = std::find_if(states_.begin(), states_.end(), [&](const State& s) { return s.end == makespan; });
  if (last == states_.end()) return path.take();
  auto i = static_cast<std::int32_t>(last - states_.begin());
  const Rank* rank = &*std::find_if(ranks_.begin(), ranks_.end(), [&](const Rank& r) { return i < r.last; });
  std::uint32_t event = last->last_event;
  bool at_end = true;  // false: the hop behind this one was bound by this event's start, so its own time does not count
  while (true) {
    const State* s = &state(i);
    if (event < s->first_event || event >= s->first_event + static_cast<std::uint32_t>(s->events)) {
      const auto from = states_.begin() + rank->first;
      const auto to = states_.begin() + rank->last;
      const auto after = std::upper_bound(from, to, event, [](std::uint32_t e, const State& x) { return e < x.first_event; });
      i = static_cast<std::int32_t>(after - states_.begin()) - 1;
      s = &state(i);
    }
    if (row(i) >= 0) {
      const bool last_to_post = s->begin == s->transfer;
      if (at_end) {
        const Cause cause = last_to_post ? rank->trail.cause[event] : Cause::kPartner;
        path.add(rank->index, i - rank->first, -1, HopKind::kTransfer, cause, s->end - s->transfer);
        if (!last_to_post) {
          const auto key = static_cast<std::size_t>(s->binding);
          const double begin = s->transfer;
          for (auto m = layout_.member_start[key];; ++m) {  // some participant posted at `begin`
            const Member member = layout_.members[static_cast<std::size_t>(m)];
            if (state(member.instance).begin != begin) continue;
            rank = &ranks_[static_cast<std::size_t>(member.rank)];
            i = member.instance;
            event = state(i).first_event;
            break;
          }
        }
      }
    } else if (at_end) {
      const auto op = static_cast<std::int32_t>((event - s->first_event) % static_cast<std::uint32_t>(info(i).size));
      path.add(rank->index, i - rank->first, op, HopKind::kOp, rank->trail.cause[event],
               rank->trail.end[event] - rank->trail.start[event]);
    }

    const Cause cause = rank->trail.cause[event];
    const std::uint32_t before = rank->trail.before[event];
    if (cause == Cause::kBegin) break;
    at_end = cause != Cause::kWindow;
    if (cause == Cause::kHost || cause == Cause::kWindow) {
      const double from = before == kNoEvent ? 0.0 : at_end ? rank->trail.end[before] : rank->trail.start[before];
      path.add(rank->index, i - rank->first, -1, HopKind::kHost, cause, rank->trail.start[event] - from);
      if (before == kNoEvent) break;
    }
    event = before;
  }
  return path.take();
}

}  // namespace wt::exec
