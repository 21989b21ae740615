#include "exec/steady.h"

#include <algorithm>
#include <cmath>

#include "base/time.h"

namespace wt::exec {
namespace {

constexpr std::int64_t kMostWaits = 8;  // an instance with more is like no other

class Repeats {
 public:
  Repeats(const Program& program, const Labels& labels) : in_(program.instances), rv_(program.rendezvous), labels_(labels) {
    row_.reserve(in_.tmpl.size());
    std::size_t rows = 0;
    for (const std::int32_t tmpl : in_.tmpl) row_.push_back(tmpl < 0 ? rows++ : rows);
  }

  [[nodiscard]] Periods of_rank(std::size_t rank) const {
    const auto from = static_cast<std::size_t>(in_.rank_start[rank]), to = static_cast<std::size_t>(in_.rank_start[rank + 1]);
    const auto middle = middle_pass(from, to);
    if (middle == to) return {};
    for (std::size_t other = middle + 1; other < to; ++other) {
      if (!follows(middle, other)) continue;
      const std::size_t size = other - middle;
      std::size_t first = middle;
      while (first > from && follows(first - 1, first - 1 + size)) --first;
      if (middle - first < std::min(size, middle - from)) continue;  // a pass may be several instances
      std::size_t behind = middle + 1;
      while (behind + size < to && follows(behind, behind + size)) ++behind;
      return {static_cast<std::int64_t>(first - from), static_cast<std::int64_t>(behind + size - from),
              static_cast<std::int64_t>(size)};
    }
    return {};
  }

 private:
  // The middle one of a rank's passes; `to`: it has none.
  [[nodiscard]] std::size_t middle_pass(std::size_t from, std::size_t to) const {
    auto left = std::count(labels_.pass.begin() + static_cast<std::ptrdiff_t>(from),
                           labels_.pass.begin() + static_cast<std::ptrdiff_t>(to), std::uint8_t{1}) /
                2;
    for (std::size_t i = from; i < to; ++i)
      if (labels_.pass[i] != 0 && left-- == 0) return i;
    return to;
  }

  // Whether instance b is what a is, a period later.
  [[nodiscard]] bool follows(std::size_t a, std::size_t b) const {
    return in_.tmpl[a] == in_.tmpl[b] && labels_.kind[a] == labels_.kind[b] && advances(labels_.number[a], labels_.number[b]) &&
           in_.times[a] == in_.times[b] && in_.flags[a] == in_.flags[b] && waits_alike(a, b) &&
           (in_.tmpl[a] >= 0 || meets_alike(row_[a], row_[b]));
  }

  [[nodiscard]] bool advances(std::int64_t a, std::int64_t b) const { return a == -1 ? b == -1 : b == a + labels_.step; }

  [[nodiscard]] bool waits_alike(std::size_t a, std::size_t b) const {
    const std::int64_t count = in_.wait_start[a + 1] - in_.wait_start[a];
    if (count > kMostWaits || count != in_.wait_start[b + 1] - in_.wait_start[b]) return false;
    const auto later = static_cast<std::int64_t>(b - a);
    for (std::int64_t w = 0; w < count; ++w)
      if (in_.waits[static_cast<std::size_t>(in_.wait_start[b] + w)] !=
          in_.waits[static_cast<std::size_t>(in_.wait_start[a] + w)] + later)
        return false;
    return true;
  }

  [[nodiscard]] bool meets_alike(std::size_t a, std::size_t b) const {
    const auto p = static_cast<std::size_t>(rv_.part_start[a]), q = static_cast<std::size_t>(rv_.part_start[b]);
    return rv_.stream[a] == rv_.stream[b] && rv_.host[a] == rv_.host[b] && rv_.cat_wait[a] == rv_.cat_wait[b] &&
           rv_.cat_transfer[a] == rv_.cat_transfer[b] && rv_.seconds[p] == rv_.seconds[q] &&
           rv_.participants[p] == rv_.participants[q] &&
           rv_.part_start[a + 1] - rv_.part_start[a] == rv_.part_start[b + 1] - rv_.part_start[b] &&
           advances(rv_.key[p], rv_.key[q]);
  }

  const Instances& in_;
  const Rendezvous& rv_;
  const Labels& labels_;
  std::vector<std::size_t> row_;  // [I] rendezvous before it
};

// A stretch of time in which every time has to lie `seconds` behind the same one so many rows before.
struct Stretch {
  double seconds, since, until, off;
  [[nodiscard]] bool has(double begin, double end) const { return begin >= since && end <= until; }
  [[nodiscard]] bool moved(double after, double before) const {
    const double by = (after - before) - seconds;
    return std::isnan(by) || std::abs(by) <= off;
  }
};

class SteadyRank {
 public:
  SteadyRank(const Program& program, const RunTimes& times, const Periods& of, std::size_t rank)
      : program_(program), times_(times), size_(of.size) {
    const Instances& in = program.instances;
    const auto begin = static_cast<std::size_t>(in.rank_start[rank]), end = static_cast<std::size_t>(in.rank_start[rank + 1]);
    first_ = begin + static_cast<std::size_t>(of.first);
    last_ = begin + static_cast<std::size_t>(of.last);
    for (std::size_t i = begin; i < first_; ++i) before_ = std::max(before_, times.end[i]);
    for (std::size_t i = last_ - 1; i < end; ++i) until = std::min(until, times.begin[i]);
    for (std::size_t i = first_; i < last_ && !syncs_; ++i)
      syncs_ = (in.flags[i] & kHostSync) != 0 || has_sync(program, in.tmpl[i]);
  }

  // Seconds between the last end before `by` and the same end `together` periods before it.
  [[nodiscard]] std::optional<double> advance(std::int64_t together, double by) const {
    const auto gone = static_cast<std::size_t>(together * size_);
    for (std::size_t i = last_; i-- > first_;) {
      if (times_.end[i] > by) continue;
      if (i < first_ + gone) return std::nullopt;
      return times_.end[i] - times_.end[i - gone];
    }
    return std::nullopt;
  }

  // Whether all times of the last two times `seconds` before `by` lie `seconds` behind those `together` periods before.
  [[nodiscard]] bool repeats(std::int64_t together, double seconds, double by, double off) const {
    const Stretch in{seconds, by - 2.0 * seconds, by, off};
    return before_ <= in.since && instances_repeat(in, static_cast<std::size_t>(together * size_));
  }

  double until = kNever;

 private:
  static bool has_sync(const Program& program, std::int32_t tmpl) {
    if (tmpl < 0) return false;
    const auto at = static_cast<std::size_t>(tmpl);
    const auto* const sync = program.templates.sync.data();
    return std::any_of(sync + program.templates.start[at], sync + program.templates.start[at + 1], [](auto s) { return s != 0; });
  }

  // The host is as far ahead as before, or gets further ahead by the same time in each period and never waits.
  [[nodiscard]] bool instances_repeat(const Stretch& in, std::size_t gone) const {
    bool any = false, as_before = true, ahead = !syncs_;
    double first = 0.0;
    for (std::size_t i = first_; i < last_; ++i) {
      if (!in.has(times_.begin[i], times_.end[i])) continue;
      if (i < first_ + gone) return false;
      const std::size_t j = i - gone;
      if (!in.moved(times_.begin[i], times_.begin[j]) || !in.moved(times_.end[i], times_.end[j]) ||
          !in.moved(times_.transfer[i], times_.transfer[j]))
        return false;
      if (program_.instances.tmpl[i] >= 0 && (times_.outcome[i] < 0 || times_.outcome[i] != times_.outcome[j])) return false;
      const double host = times_.host[i] - times_.host[j];
      if (!any) first = host;
      any = true;
      as_before = as_before && std::abs(host - in.seconds) <= in.off;
      ahead = ahead && std::abs(host - first) <= in.off;
    }
    return any && (as_before || (ahead && first < in.seconds));
  }

  const Program& program_;
  const RunTimes& times_;
  std::int64_t size_;
  std::size_t first_, last_;
  double before_ = 0.0;
  bool syncs_ = false;
};

}  // namespace

std::vector<Periods> find_periods(const Program& program, const Labels& labels) {
  const Repeats repeats(program, labels);
  std::vector<Periods> found;
  for (std::size_t rank = 0; rank + 1 < program.instances.rank_start.size(); ++rank) found.push_back(repeats.of_rank(rank));
  return found;
}

std::optional<Steady> find_steady(const Program& program, std::span<const Periods> periods, const RunTimes& times,
                                  std::span<const std::int64_t> together, double tolerance) {
  std::vector<SteadyRank> ranks;
  double until = kNever;
  for (std::size_t r = 0; r < periods.size(); ++r) {
    ranks.emplace_back(program, times, periods[r], r);
    until = std::min(until, ranks.back().until);
  }
  const double off = tolerance * times.makespan;
  for (const std::int64_t number : together) {
    const auto seconds = ranks.front().advance(number, until);
    if (seconds &&
        std::all_of(ranks.begin(), ranks.end(), [&](const SteadyRank& r) { return r.repeats(number, *seconds, until, off); }))
      return Steady{number, *seconds};
  }
  return std::nullopt;
}

}  // namespace wt::exec
