#include "dag/dag.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <utility>

#include "base/check.h"
#include "base/time.h"
#include "dag/meetings.h"
#include "dag/validate.h"

namespace wt::dag {

namespace {

constexpr std::uint32_t kPulse = 1U << 16U;

enum class What : std::uint8_t { kEnd, kFree };

struct Event {
  double time;
  std::uint64_t order;
  std::int32_t task;
  What what;
  bool operator>(const Event& o) const { return time > o.time || (time == o.time && order > o.order); }
};

struct Waiting {  // a ready task before its lane
  std::int64_t priority;
  std::uint64_t order;
  std::int32_t task;
  bool operator>(const Waiting& o) const { return priority > o.priority || (priority == o.priority && order > o.order); }
};

using Heap = std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>>;

class Runner {
 public:
  Runner(const Tasks& tasks, const Lanes& lanes, const Channels& channels, net::Network* network, const Model& model)
      : tasks_(tasks), lanes_(lanes), meetings_(channels), network_(network), model_(model), n_(tasks.seconds.size()) {
    out_.start.assign(n_, kUnset);
    out_.end.assign(n_, kUnset);
    out_.begin.assign(n_, kUnset);
    out_.cause.assign(n_, -1);
    out_.last.assign(n_, -1);
    waiting_.resize(lanes.ordered.size());
    used_.assign(lanes.ordered.size(), 0);
    link();
  }

  Outcome run(const std::function<void()>& pulse) {
    for (std::size_t i = 0; i < n_; ++i)
      if (open_[i] == 0) make_ready(static_cast<std::int32_t>(i), 0.0, -1);
    for (std::size_t l = 0; l < waiting_.size(); ++l) serve(static_cast<std::int32_t>(l), 0.0, -1);
    std::uint32_t ticks = 0;
    while (step())
      if (++ticks % kPulse == 0 && pulse) pulse();
    return std::move(out_);
  }

 private:
  static std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }
  [[nodiscard]] std::int32_t lane(std::int32_t i) const { return tasks_.lane[at(i)]; }
  [[nodiscard]] std::int32_t released(std::int32_t i) const { return tasks_.release.empty() ? lane(i) : tasks_.release[at(i)]; }
  [[nodiscard]] double tail(std::int32_t i) const { return tasks_.tail.empty() ? 0.0 : tasks_.tail[at(i)]; }

  // Successors of each task, the next task of an ordered lane among them.
  void link() {
    std::vector<std::int32_t> before(n_, -1), latest(lanes_.ordered.size(), -1);
    for (std::size_t i = 0; i < n_; ++i) {
      const std::int32_t l = tasks_.lane[i];
      if (l < 0 || lanes_.ordered[at(l)] == 0) continue;
      before[i] = latest[at(l)];
      latest[at(l)] = static_cast<std::int32_t>(i);
    }
    open_.assign(n_, 0);
    next_start_.assign(n_ + 1, 0);
    const auto each = [&](auto&& visit) {
      for (std::size_t i = 0; i < n_; ++i) {
        for (std::int64_t d = tasks_.dep_start[i]; d < tasks_.dep_start[i + 1]; ++d)
          visit(static_cast<std::size_t>(tasks_.deps[static_cast<std::size_t>(d)]), i);
        if (before[i] >= 0) visit(at(before[i]), i);
      }
    };
    each([&](std::size_t from, std::size_t to) {
      ++next_start_[from + 1];
      ++open_[to];
    });
    for (std::size_t i = 0; i < n_; ++i) next_start_[i + 1] += next_start_[i];
    next_.resize(static_cast<std::size_t>(next_start_[n_]));
    std::vector<std::int64_t> fill(next_start_.begin(), next_start_.end() - 1);
    each([&](std::size_t from, std::size_t to) { next_[static_cast<std::size_t>(fill[from]++)] = static_cast<std::int32_t>(to); });
  }

  bool step() {
    const double own = events_.empty() ? kNever : events_.top().time;
    if (network_ != nullptr && network_->next_event() < own) {
      if (const auto done = network_->advance()) {
        const std::int32_t meeting = flights_[at(done->id)];
        free_flights_.push_back(done->id);
        conclude(meeting, done->end);
      }
      return true;
    }
    if (events_.empty()) return false;
    const Event event = events_.top();
    events_.pop();
    if (event.what == What::kFree) {
      give_back(released(event.task), event.time, event.task);
    } else {
      finish(event.task, event.time);
    }
    return true;
  }

  void make_ready(std::int32_t i, double now, std::int64_t cause) {
    const std::int32_t l = lane(i);
    if (l < 0 || lanes_.ordered[at(l)] != 0) {
      start(i, now, cause);
    } else {
      waiting_[at(l)].push({tasks_.priority.empty() ? 0 : tasks_.priority[at(i)], order_++, i});
    }
  }

  void serve(std::int32_t l, double now, std::int64_t cause) {
    auto& waiting = waiting_[at(l)];
    while (!waiting.empty() && used_[at(l)] < lanes_.width[at(l)]) {
      const std::int32_t i = waiting.top().task;
      waiting.pop();
      ++used_[at(l)];
      start(i, now, cause);
    }
  }

  void give_back(std::int32_t l, double now, std::int64_t cause) {
    if (l < 0 || lanes_.ordered[at(l)] != 0) return;
    --used_[at(l)];
    serve(l, now, cause);
  }

  void schedule(double time, std::int32_t task, What what) { events_.push({time, order_++, task, what}); }

  void start(std::int32_t i, double now, std::int64_t cause) {
    out_.start[at(i)] = now;
    out_.cause[at(i)] = cause;
    if (!tasks_.channel.empty() && tasks_.channel[at(i)] >= 0) {
      post(i, now);
      return;
    }
    const double held = now + tasks_.seconds[at(i)];
    if (tail(i) > 0) {
      schedule(held, i, What::kFree);
      schedule(held + tail(i), i, What::kEnd);
    } else {
      schedule(held, i, What::kEnd);
    }
  }

  void finish(std::int32_t i, double now) {
    out_.end[at(i)] = now;
    ++out_.done;
    // Lanes that got new work are served after the lane that this task gives back, as one event of the task's own.
    touched_.clear();
    for (std::int64_t k = next_start_[at(i)]; k < next_start_[at(i) + 1]; ++k) {
      const std::int32_t next = next_[static_cast<std::size_t>(k)];
      if (--open_[at(next)] != 0) continue;
      make_ready(next, now, i);
      if (lane(next) >= 0 && lanes_.ordered[at(lane(next))] == 0) touched_.push_back(lane(next));
    }
    if (!(tail(i) > 0)) give_back(released(i), now, i);
    for (const std::int32_t l : touched_) serve(l, now, i);
  }

  void post(std::int32_t i, double now) {
    const std::int32_t channel = tasks_.channel[at(i)];
    const ChannelKind kind = meetings_.kind(channel);
    if (kind == ChannelKind::kPort) {
      double& free = meetings_.port(channel);
      out_.begin[at(i)] = std::max(free, now);
      free = out_.begin[at(i)] + tasks_.seconds[at(i)];
      out_.last[at(i)] = i;
      schedule(free, i, What::kEnd);
      return;
    }
    const std::int32_t slot = tasks_.slot[at(i)];
    const std::int32_t index = meetings_.post(channel, slot, i, now);
    Meeting& meeting = meetings_.at(index);
    meeting.seconds = std::max(meeting.seconds, tasks_.seconds[at(i)]);
    if (!tasks_.key.empty() && tasks_.key[at(i)] >= 0) meeting.key = tasks_.key[at(i)];
    if (kind == ChannelKind::kEager) {
      if (slot == 0) {
        set_off(index, now, tasks_.seconds[at(i)]);
      } else if (meeting.sent >= 0) {
        end_at(i, std::max(now, meeting.sent), meeting);
        meetings_.close(index);
      }
      return;
    }
    if (meeting.arrived < static_cast<std::int32_t>(meeting.tasks.size())) return;
    if (kind == ChannelKind::kModel) {
      ends_.assign(meeting.tasks.size(), 0.0);
      model_(channel, meeting.number, meeting.posted, ends_);
      for (std::size_t s = 0; s < ends_.size(); ++s) {
        if (!(ends_[s] >= now))
          fail("channel ", channel, ": the model ends slot ", s, " at ", ends_[s], ", before all have posted, ", now);
        out_.begin[at(meeting.tasks[s])] = now;
        end_at(meeting.tasks[s], ends_[s], meeting);
      }
      meetings_.close(index);
      return;
    }
    set_off(index, now, meeting.seconds);
  }

  // A meeting begins to take its time.
  void set_off(std::int32_t index, double now, double seconds) {
    const Meeting& meeting = meetings_.at(index);
    for (const std::int32_t task : meeting.tasks)
      if (task >= 0) out_.begin[at(task)] = now;
    if (network_ != nullptr && meeting.key >= 0) {
      std::int32_t id = 0;
      if (free_flights_.empty()) {
        id = static_cast<std::int32_t>(flights_.size());
        flights_.push_back(index);
      } else {
        id = free_flights_.back();
        free_flights_.pop_back();
        flights_[at(id)] = index;
      }
      const auto end = network_->start({id, meeting.key, now, seconds, now});
      if (!end) return;
      free_flights_.push_back(id);
      conclude(index, *end);
      return;
    }
    conclude(index, now + seconds);
  }

  void conclude(std::int32_t index, double end) {
    Meeting& meeting = meetings_.at(index);
    if (meetings_.kind(meeting.channel) == ChannelKind::kEager) {
      meeting.last = meeting.tasks[0];
      end_at(meeting.tasks[0], end, meeting);
      meeting.sent = end;
      if (meeting.tasks[1] < 0) return;  // the receiver is still to come
      end_at(meeting.tasks[1], end, meeting);
    } else {
      for (const std::int32_t task : meeting.tasks) end_at(task, end, meeting);
    }
    meetings_.close(index);
  }

  void end_at(std::int32_t task, double end, const Meeting& meeting) {
    out_.last[at(task)] = meeting.last;
    schedule(end, task, What::kEnd);
  }

  const Tasks& tasks_;
  const Lanes& lanes_;
  Meetings meetings_;
  net::Network* network_;
  const Model& model_;
  const std::size_t n_;
  Outcome out_;
  std::vector<std::int32_t> open_, next_;
  std::vector<std::int64_t> next_start_;
  std::vector<Heap> waiting_;
  std::vector<std::int32_t> used_, touched_, flights_, free_flights_;
  std::vector<double> ends_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t order_ = 0;
};

}  // namespace

Outcome run(const Tasks& tasks, const Lanes& lanes, const Channels& channels, net::Network* network, const Model& model,
            const std::function<void()>& pulse) {
  validate(tasks, lanes, channels, static_cast<bool>(model));
  return Runner(tasks, lanes, channels, network, model).run(pulse);
}

}  // namespace wt::dag
