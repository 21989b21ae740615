// Random programs against a slow evaluator written another way, and against the laws that every timeline keeps.
//   exec_fuzz [programs] [seed]
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <queue>
#include <random>
#include <string>

#include "base/check.h"
#include "tests/builder.h"

using namespace wt::exec;

namespace {

using Rng = std::mt19937_64;

int pick(Rng& rng, int n) { return static_cast<int>(rng() % static_cast<std::uint64_t>(n)); }
// Eighths, so that sums are exact and ties happen.
double pick_seconds(Rng& rng) { return pick(rng, 24) / 8.0; }

// Swaps two neighbours that do not wait for one another, and renames them in the waits of those behind.
void swap_neighbours(std::vector<InstanceSpec>& rank, Rng& rng) {
  if (rank.size() < 2) return;
  const int at = pick(rng, static_cast<int>(rank.size()) - 1);
  InstanceSpec& first = rank[static_cast<std::size_t>(at)];
  InstanceSpec& second = rank[static_cast<std::size_t>(at) + 1];
  if (std::count(second.waits.begin(), second.waits.end(), at) > 0) return;
  std::swap(first, second);
  for (std::size_t i = static_cast<std::size_t>(at) + 2; i < rank.size(); ++i)
    for (int& w : rank[i].waits)
      if (w == at || w == at + 1) w = 2 * at + 1 - w;
}

Builder random_program(Rng& rng) {
  Builder b;
  b.categories = 4;
  const int streams = 1 + pick(rng, 4);
  const int kinds = 1 + pick(rng, 4);
  const bool host = pick(rng, 2) == 0;
  for (int t = 0; t < kinds; ++t) {
    std::vector<OpSpec> ops(static_cast<std::size_t>(1 + pick(rng, 5)));
    const int only = pick(rng, streams);
    const bool wide = pick(rng, 2) == 0;
    for (int k = 0; k < static_cast<int>(ops.size()); ++k) {
      OpSpec& op = ops[static_cast<std::size_t>(k)];
      op.seconds = pick_seconds(rng);
      op.stream = wide ? pick(rng, streams) : only;
      op.category = pick(rng, 4);
      op.host = host ? pick_seconds(rng) / 4.0 : 0.0;
      op.comm = pick(rng, 3) == 0;
      op.sync = pick(rng, 12) == 0;
      op.live = op.comm && pick(rng, 2) == 0 ? 0 : -1;
      if (k > 0 && pick(rng, 2) == 0) op.wait0 = pick(rng, k);
      if (k > 0 && pick(rng, 4) == 0) op.wait1 = pick(rng, k);
    }
    b.add_template(std::move(ops));
  }
  const int ranks = 1 + pick(rng, 4);
  b.ranks.resize(static_cast<std::size_t>(ranks));
  const auto waits = [&](const std::vector<InstanceSpec>& rank) {
    std::vector<int> out;
    for (int n = pick(rng, 3); n > 0 && !rank.empty(); --n) out.push_back(pick(rng, static_cast<int>(rank.size())));
    return out;
  };
  for (int step = 4 + pick(rng, 20); step > 0; --step) {
    if (ranks > 1 && pick(rng, 2) == 0) {  // a meeting of some of the ranks
      std::vector<int> who(static_cast<std::size_t>(ranks));
      for (int r = 0; r < ranks; ++r) who[static_cast<std::size_t>(r)] = r;
      std::shuffle(who.begin(), who.end(), rng);
      who.resize(static_cast<std::size_t>(2 + pick(rng, ranks - 1)));
      const int stream = pick(rng, streams);
      for (const int r : who) {
        auto& rank = b.ranks[static_cast<std::size_t>(r)];
        InstanceSpec m = meet({{step, pick_seconds(rng), static_cast<int>(who.size())}}, waits(rank), stream);
        if (!rank.empty() && rank.back().tmpl == kRendezvous && rank.back().stream == stream && pick(rng, 2) == 0) {
          rank.back().parts.push_back(m.parts[0]);  // two meetings posted at once
          continue;
        }
        m.host = host ? pick_seconds(rng) / 4.0 : 0.0;
        m.cat_wait = pick(rng, 4);
        m.cat_transfer = pick(rng, 4);
        m.flags = pick(rng, 12) == 0 ? kHostSync : std::uint8_t{0};
        rank.push_back(std::move(m));
      }
    } else {
      auto& rank = b.ranks[static_cast<std::size_t>(pick(rng, ranks))];
      const auto flags = static_cast<std::uint8_t>((pick(rng, 8) == 0 ? kHostSync : 0) | (pick(rng, 4) == 0 ? kJoin : 0));
      rank.push_back(task(pick(rng, kinds), waits(rank), 1 + pick(rng, 3), flags));
    }
  }
  if (pick(rng, 3) == 0) b.host_window = 1 + pick(rng, 6);
  if (pick(rng, 2) == 0)  // meetings out of order: some cross without harm on two streams, some deadlock
    for (int n = 1 + pick(rng, 4); n > 0; --n) swap_neighbours(b.ranks[static_cast<std::size_t>(pick(rng, ranks))], rng);
  return b;
}

// Gives times to whatever has all its inputs, over and over, one operator at a time. Knows no tax.
class Slow {
 public:
  explicit Slow(const Builder& b) : b_(b) {}

  // Start and end of every operator by rank in program order; nullopt for a deadlock.
  std::optional<std::vector<std::vector<std::pair<double, double>>>> run() {
    for (const auto& rank : b_.ranks) {
      std::size_t n = 0;
      for (const InstanceSpec& i : rank) n += size(i);
      times_.emplace_back(n, std::pair{wt::kUnset, wt::kUnset});
    }
    while (sweep()) {
    }
    for (const auto& rank : times_)
      for (const auto& [start, end] : rank)
        if (std::isnan(end)) return std::nullopt;
    return times_;
  }

 private:
  std::size_t size(const InstanceSpec& i) const {
    return i.tmpl == kRendezvous ? 1 : static_cast<std::size_t>(i.times) * b_.templates[static_cast<std::size_t>(i.tmpl)].size();
  }
  double end_of(std::size_t r, int instance) const {
    std::size_t first = 0;
    for (int i = 0; i < instance; ++i) first += size(b_.ranks[r][static_cast<std::size_t>(i)]);
    double end = 0.0;
    for (std::size_t k = 0; k < size(b_.ranks[r][static_cast<std::size_t>(instance)]); ++k) {
      if (std::isnan(times_[r][first + k].second)) return wt::kUnset;
      end = std::max(end, times_[r][first + k].second);
    }
    return end;
  }
  // One walk over every rank in program order; NaN is "not known", and spreads.
  bool sweep() {
    bool progress = false;
    for (std::size_t r = 0; r < b_.ranks.size(); ++r) {
      double host = 0.0;
      std::vector<double> free(64, 0.0);
      std::size_t event = 0;
      const auto join = [](double a, double b) { return std::isnan(a) || std::isnan(b) ? wt::kUnset : std::max(a, b); };
      for (std::size_t i = 0; i < b_.ranks[r].size(); ++i) {
        const InstanceSpec& instance = b_.ranks[r][i];
        double gate = 0.0;
        for (const int w : instance.waits) gate = join(gate, end_of(r, w));
        const std::size_t first = event;
        const bool meets = instance.tmpl == kRendezvous;
        const std::size_t n = meets ? 1 : b_.templates[static_cast<std::size_t>(instance.tmpl)].size();
        for (std::size_t k = 0; k < size(instance); ++k, ++event) {
          auto& [start, end] = times_[r][event];
          const OpSpec op = meets ? OpSpec{.seconds = 0.0, .stream = instance.stream, .host = instance.host}
                                  : b_.templates[static_cast<std::size_t>(instance.tmpl)][k % n];
          const auto window = static_cast<std::size_t>(b_.host_window);
          if (window > 0 && event >= window) host = join(host, times_[r][event - window].first);
          host += op.host;
          double at = join(join(free[static_cast<std::size_t>(op.stream)], gate), host);
          const std::size_t repeat = first + k / n * n;
          if ((instance.flags & kJoin) != 0)
            for (std::size_t e = first; e < repeat; ++e) at = join(at, times_[r][e].second);
          for (const int w : {op.wait0, op.wait1})
            if (w >= 0) at = join(at, times_[r][repeat + static_cast<std::size_t>(w)].second);
          if (std::isnan(start) && !std::isnan(at)) start = at, progress = true;
          if (std::isnan(end) && !std::isnan(start)) {
            end = meets ? meeting_end(instance) : start + op.seconds;
            progress = progress || !std::isnan(end);
          }
          free[static_cast<std::size_t>(op.stream)] = end;
          if (op.sync && !meets) host = join(host, end);
        }
        if ((instance.flags & kHostSync) != 0) host = join(host, end_of(r, static_cast<int>(i)));
      }
    }
    return progress;
  }
  double meeting_end(const InstanceSpec& self) const {
    double last = 0.0;
    for (const PartSpec& mine : self.parts) {
      double begin = 0.0, seconds = 0.0;
      for (std::size_t r = 0; r < b_.ranks.size(); ++r) {
        std::size_t event = 0;
        for (const InstanceSpec& i : b_.ranks[r]) {
          for (const PartSpec& p : i.parts)
            if (p.key == mine.key) {
              if (std::isnan(times_[r][event].first)) return wt::kUnset;
              begin = std::max(begin, times_[r][event].first);
              seconds = std::max(seconds, p.seconds);
            }
          event += size(i);
        }
      }
      last = std::max(last, begin + seconds);
    }
    return last;
  }

  const Builder& b_;
  std::vector<std::vector<std::pair<double, double>>> times_;
};

void require(bool ok, const char* law) {
  if (!ok) throw std::logic_error(law);
}

// A network with a clock whose calls take the seconds stated for them.
class Later final : public wt::net::Network {
 public:
  std::optional<double> start(const wt::net::Flow& flow) override {
    if (flow.begin < now_) throw std::logic_error("a call begins before the network's clock");
    ends_.push({flow.begin + flow.seconds, flow.id});
    return std::nullopt;
  }
  [[nodiscard]] double next_event() const override { return ends_.empty() ? wt::kNever : ends_.top().first; }
  std::optional<wt::net::Completion> advance() override {
    const auto [end, id] = ends_.top();
    ends_.pop();
    now_ = end;
    return wt::net::Completion{id, end};
  }

 private:
  using End = std::pair<double, std::int32_t>;
  double now_ = 0.0;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
};

bool close(double a, double b) { return std::abs(a - b) <= 1e-9 * std::max(1.0, std::abs(b)); }

void check_laws(const Builder& b, const Timeline& t) {
  const auto streams = static_cast<std::size_t>(t.streams);
  const auto kinds = static_cast<std::size_t>(b.categories);
  for (std::size_t r = 0; r < b.ranks.size(); ++r) {
    double sum = 0.0;
    for (std::size_t c = 0; c < kinds; ++c) sum += t.busy[r * streams * kinds + c];
    for (std::size_t c = 0; c < kinds + 2; ++c) {
      require(t.idle[r * (kinds + 2) + c] >= -1e-12, "idle seconds are not negative");
      sum += t.idle[r * (kinds + 2) + c];
    }
    require(close(sum, t.makespan), "busy and idle of stream 0 add up to the makespan");
    for (std::size_t s = 0; s < streams; ++s) {
      double stream = 0.0;
      for (std::size_t c = 0; c < kinds; ++c) stream += t.busy[(r * streams + s) * kinds + c];
      require(stream <= t.makespan * (1 + 1e-12), "no stream is busy for longer than the makespan");
    }
  }
  require(close(total(t.path.seconds), t.makespan), "the critical path is as long as the makespan");
  for (const double s : t.path.seconds) require(s >= 0.0, "no hop of the critical path is negative");
}

bool alike(std::span<const double> a, std::span<const double> b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](double x, double y) { return std::isnan(x) ? std::isnan(y) : close(x, y); });
}

std::optional<Timeline> by_time(Builder b, bool clock) {
  b.live_calls = 1;
  wt::net::Closed closed;
  Later later;
  try {
    return clock ? run(b.build(), later) : run(b.build(), closed);
  } catch (const wt::Error& error) {
    require(std::string(error.what()).starts_with("deadlock"), error.what());
    return std::nullopt;
  }
}

int unlike = 0;      // programs with a tax whose times differ between the evaluators
double worst = 0.0;  // share by which one of their makespans differs

// The evaluator that goes by time, with a network that answers at once and with one that answers later.
void check_by_time(const Builder& b, const Timeline& walked, bool tax) {
  const auto at_once = by_time(b, false), later = by_time(b, true);
  require(at_once && later, "what ends when ranks are walked ends by time");
  require(at_once->makespan == later->makespan && at_once->end == later->end, "when the network answers changes nothing");
  check_laws(b, *at_once);
  if (tax) {
    // but where walking has to place computing before it knows the end of a transfer beside it
    const double off = std::abs(at_once->makespan - walked.makespan) / std::max(1e-9, walked.makespan);
    require(off <= b.compute_tax, "both evaluators tax alike");
    if (!alike(at_once->end, walked.end)) {
      ++unlike;
      worst = std::max(worst, off);
    }
    return;
  }
  require(alike(at_once->begin, walked.begin) && alike(at_once->end, walked.end) && alike(at_once->transfer, walked.transfer),
          "both evaluators give instances the same times");
  require(alike(at_once->record.start, walked.record.start) && alike(at_once->record.end, walked.record.end),
          "both evaluators give operators the same times");
  require(alike(at_once->busy, walked.busy) && alike(at_once->idle, walked.idle), "both evaluators keep the same accounts");
  require(alike(at_once->host, walked.host) && alike(at_once->host_end, walked.host_end), "both evaluators' hosts are as fast");
  for (const auto& rank : b.ranks)
    for (const InstanceSpec& i : rank)
      if (i.parts.size() > 1) return;  // either of two that end together may be the cause
  require(alike(at_once->path.seconds, walked.path.seconds) && at_once->path.cause == walked.path.cause &&
              at_once->path.instance == walked.path.instance,
          "both evaluators find the same critical path");
}

int recalled = 0;  // programs of which instances were recalled

// The program a few times over: what it repeats begins as it did before, now and then.
Builder over_and_over(const Builder& b) {
  Builder out = b;
  for (int more = 1; more < 6; ++more)
    for (std::size_t r = 0; r < b.ranks.size(); ++r) {
      const auto shift = more * static_cast<int>(b.ranks[r].size());
      for (InstanceSpec i : b.ranks[r]) {
        for (int& wait : i.waits) wait += shift;
        for (PartSpec& part : i.parts) part.key += 1000 * more;
        if (i.tmpl != kRendezvous) i.times += 2;
        out.ranks[r].push_back(std::move(i));
      }
    }
  return out;
}

// Instances that are recalled have the bits of those that are walked through.
void check_recalled(const Builder& b) {
  Builder walks = over_and_over(b);
  walks.grid = 0x1p-30;
  Timeline walked;
  try {
    walked = walks.run();
  } catch (const wt::Error& error) {  // meetings of one round may cross those of the next
    require(std::string(error.what()).starts_with("deadlock"), error.what());
    return;
  }
  walks.critical_path = false;
  for (const bool record : {true, false}) {
    walks.record = record;
    const Timeline t = walks.run();
    const auto same = [](std::span<const double> one, std::span<const double> other) {
      return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                        [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
    };
    require(t.makespan == walked.makespan && same(t.begin, walked.begin) && same(t.end, walked.end) && same(t.host, walked.host),
            "recalled instances have the same times");
    require(same(t.busy, walked.busy) && same(t.idle, walked.idle) && same(t.stretch, walked.stretch),
            "recalled instances have the same accounts");
    require(!record || (same(t.record.start, walked.record.start) && same(t.record.end, walked.record.end)),
            "operators of recalled instances have the same times");
    require(same(t.host_end, walked.host_end), "hosts of recalled instances come as far");
    recalled += t.recalled > 0 ? 1 : 0;
  }
}

bool check_program(Rng& rng) {
  Builder b = random_program(rng);
  b.record = true;
  std::optional<Timeline> got;
  try {
    got = b.run();
  } catch (const wt::Error& error) {
    require(std::string(error.what()).starts_with("deadlock"), error.what());
  }
  const auto want = Slow(b).run();
  require(by_time(b, false).has_value() == want.has_value(), "by time, a program ends if it does for the slow evaluator");
  if (!got) {
    bool narrow = true;  // an instance is placed as a whole, which can block only where templates span streams
    for (const auto& ops : b.templates)
      for (const OpSpec& op : ops) narrow = narrow && op.stream == ops[0].stream;
    require(!want || !narrow, "a deadlock is one for the slow evaluator too");
    return false;
  }
  require(want.has_value(), "what the slow evaluator cannot finish is a deadlock");
  std::size_t row = 0;
  for (const auto& rank : *want)
    for (const auto& [start, end] : rank) {
      require(close(got->record.start[row], start) && close(got->record.end[row], end),
              "operator times agree with the slow evaluator");
      ++row;
    }
  check_laws(b, *got);
  check_by_time(b, *got, false);

  b.compute_tax = 0.125 * (1 + pick(rng, 7));
  const Timeline taxed = b.run();
  check_laws(b, taxed);
  require(taxed.makespan >= got->makespan * (1 - 1e-12), "a tax makes nothing faster");
  check_by_time(b, taxed, true);
  check_recalled(b);
  const auto exact = by_time(b, false);
  Builder reversed = b;
  std::reverse(reversed.ranks.begin(), reversed.ranks.end());
  const Timeline mirrored = reversed.run();
  require(mirrored.makespan == taxed.makespan, "the order of ranks changes nothing");
  for (std::size_t r = 0; r < b.ranks.size(); ++r)
    require(mirrored.rank_end[b.ranks.size() - 1 - r] == taxed.rank_end[r], "the order of ranks changes no rank");
  const auto backwards = by_time(reversed, true);
  for (std::size_t r = 0; r < b.ranks.size(); ++r)
    require(backwards->rank_end[b.ranks.size() - 1 - r] == exact->rank_end[r], "by time, the order of ranks changes no rank");
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const int programs = argc > 1 ? std::atoi(argv[1]) : 3000;
  const auto seed = static_cast<std::uint64_t>(argc > 2 ? std::atoll(argv[2]) : 1);
  int finished = 0;
  for (int n = 0; n < programs; ++n) {
    Rng rng(seed * 1000003 + static_cast<std::uint64_t>(n));
    try {
      finished += check_program(rng) ? 1 : 0;
    } catch (const std::exception& error) {
      std::cerr << "program " << n << " of seed " << seed << ": " << error.what() << "\n";
      return EXIT_FAILURE;
    }
  }
  std::cout << programs << " programs, " << finished << " of them finish, the others deadlock; with a tax " << unlike
            << " differ between the evaluators, by up to " << 100.0 * worst << " %; of " << recalled / 2
            << " instances were recalled\n";
  if (unlike > 1 + finished / 1000) {
    std::cerr << "both evaluators tax alike but for one program in a thousand\n";
    return EXIT_FAILURE;
  }
  if (programs >= 1000 && recalled < finished / 4) {
    std::cerr << "hardly anything is recalled\n";
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
