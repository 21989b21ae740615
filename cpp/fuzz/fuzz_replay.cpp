// Random programs of starts over a network and over its replay: with tolerance 0 the same ends, to the picosecond.
//   replay_fuzz [programs] [seed]
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/time.h"
#include "net/replay/replay.h"
#include "tests/builder.h"

using namespace wt::net;

namespace {

using Rng = std::mt19937_64;

int pick(Rng& rng, int n) { return static_cast<int>(rng() % static_cast<std::uint64_t>(n)); }

void require(bool ok, const std::string& what) {
  if (!ok) wt::fail(what);
}

using Way = std::vector<std::int32_t>;
const std::vector<Way> kWays = {{0}, {1}, {2}, {0, 1}, {1, 2}, {2, 3}};

// A flow of key k takes links kWays[k % 6], and on each the same part as others; the smallest counts. In whole picoseconds, so that
// nothing depends on when it happens.
class Links final : public Network {
 public:
  std::optional<double> start(const Flow& flow) override {
    if (flow.seconds == 0) return flow.begin;
    flows_[flow.id] = {std::max<std::int64_t>(now_, std::llround(flow.begin * 1e12)), std::llround(flow.seconds * 1e12) * kParts,
                       &kWays[static_cast<std::size_t>(flow.key % 6)]};
    return std::nullopt;
  }
  [[nodiscard]] double next_event() const override { return flows_.empty() ? wt::kNever : static_cast<double>(next()) / 1e12; }
  std::optional<Completion> advance() override {
    const std::int64_t to = next();
    const auto share = shares();
    for (auto& [id, f] : flows_)
      if (f.begin <= now_) f.left = std::max<std::int64_t>(0, f.left - (to - now_) * kParts / users(share, f));
    now_ = to;
    for (const auto& [id, f] : flows_)
      if (f.begin <= now_ && f.left == 0) {
        const Completion done{id, static_cast<double>(now_) / 1e12};
        flows_.erase(id);
        return done;
      }
    return std::nullopt;
  }

 private:
  static constexpr std::int64_t kParts = 27720;  // up to 12 flows share exactly
  struct Active {
    std::int64_t begin, left;
    const Way* way;
  };
  static std::int64_t users(const std::vector<std::int64_t>& of, const Active& f) {
    std::int64_t most = 1;
    for (const std::int32_t l : *f.way) most = std::max(most, of[static_cast<std::size_t>(l)]);
    return most;
  }
  [[nodiscard]] std::vector<std::int64_t> shares() const {
    std::vector<std::int64_t> n(4);
    for (const auto& [id, f] : flows_)
      if (f.begin <= now_)
        for (const std::int32_t l : *f.way) ++n[static_cast<std::size_t>(l)];
    return n;
  }
  [[nodiscard]] std::int64_t next() const {
    const auto share = shares();
    std::int64_t first = INT64_MAX;
    for (const auto& [id, f] : flows_)
      first = std::min(first, f.begin > now_ ? f.begin : now_ + (f.left * users(share, f) + kParts - 1) / kParts);
    return first;
  }
  std::map<std::int32_t, Active> flows_;
  std::int64_t now_ = 0;
};

bool same(double a, double b) { return std::llround(a * 1e12) == std::llround(b * 1e12); }

// Equal plans: the same way and the same seconds. What takes no time is answered at once, here as there.
std::int32_t plan_of(const Flow& f) {
  return f.seconds == 0 ? -1 : static_cast<std::int32_t>(f.key % 6 + 6 * std::lround(f.seconds * 1e9));
}

// Flows that start at a time of their own, or some time after others have ended.
struct Item {
  std::int64_t key;
  double at, seconds;  // at: after the last of `after`
  std::vector<int> after;
};

std::vector<double> run(Network& n, const std::vector<Item>& items) {
  std::vector<double> ends(items.size(), -1.0);
  std::vector<std::size_t> open(items.size());
  std::vector<double> ready(items.size());
  const auto launch = [&](auto&& self, std::size_t i) -> void {
    const Item& item = items[i];
    if (const auto end = n.start({static_cast<std::int32_t>(i), item.key, ready[i] + item.at, item.seconds})) {
      ends[i] = *end;
      for (std::size_t k = 0; k < items.size(); ++k)
        for (const int a : items[k].after)
          if (static_cast<std::size_t>(a) == i) {
            ready[k] = std::max(ready[k], ends[i]);
            if (--open[k] == 0) self(self, k);
          }
    }
  };
  for (std::size_t i = 0; i < items.size(); ++i) open[i] = items[i].after.size();
  for (std::size_t i = 0; i < items.size(); ++i)
    if (items[i].after.empty()) launch(launch, i);
  double clock = 0;
  while (n.next_event() != wt::kNever) {
    const auto done = n.advance();
    if (!done) continue;
    require(done->end >= clock, "completions come in order of time");
    clock = done->end;
    const auto i = static_cast<std::size_t>(done->id);
    ends[i] = done->end;
    for (std::size_t k = 0; k < items.size(); ++k)
      for (const int a : items[k].after)
        if (static_cast<std::size_t>(a) == i) {
          ready[k] = std::max(ready[k], ends[i]);
          if (--open[k] == 0) launch(launch, k);
        }
  }
  return ends;
}

std::vector<Item> random_items(Rng& rng) {
  std::vector<std::vector<Item>> patterns(static_cast<std::size_t>(1 + pick(rng, 3)));
  for (auto& pattern : patterns)
    for (int n = 1 + pick(rng, 6), i = 0; i < n; ++i) {
      Item item{pick(rng, 6), pick(rng, 8) * 1e-9, pick(rng, 6) * 1e-9, {}};
      for (int k = 0; k < i; ++k)
        if (pick(rng, 3) == 0) item.after.push_back(k);
      pattern.push_back(item);
    }
  std::vector<Item> items;
  int first = 0;  // of the pattern before
  for (int n = 2 + pick(rng, 8); n > 0; --n) {
    const auto& pattern = patterns[static_cast<std::size_t>(pick(rng, static_cast<int>(patterns.size())))];
    const auto base = static_cast<int>(items.size());
    const bool overlap = pick(rng, 4) == 0;
    for (Item item : pattern) {
      for (int& a : item.after) a += base;
      if (base > 0 && (item.after.empty() || pick(rng, 8) == 0))
        for (int a = first; a < (overlap ? first + 1 : base); ++a) item.after.push_back(a);
      if (pick(rng, 40) == 0) item.at += 1e-9;
      items.push_back(item);
    }
    first = base;
  }
  return items;
}

// Rounds of the same pipeline: tasks, then meetings on streams of their own.
wt::exec::Builder random_steps(Rng& rng) {
  using namespace wt::exec;
  Builder b;
  const int ranks = 2 + pick(rng, 3), kinds = 1 + pick(rng, 3), rounds = 2 + pick(rng, 6);
  for (int t = 0; t < kinds; ++t) b.add_template({{.seconds = pick(rng, 6) * 1e-9}});
  if (pick(rng, 3) == 0) b.compute_tax = 0.5;
  b.ranks.resize(static_cast<std::size_t>(ranks));
  struct Meeting {
    int left, right, stream;
    double seconds;
    bool waits;
  };
  std::vector<Meeting> meetings;
  for (int n = 1 + pick(rng, 5); n > 0; --n) {
    const int left = pick(rng, ranks);
    meetings.push_back({left, (left + 1 + pick(rng, ranks - 1)) % ranks, 1 + pick(rng, 2), pick(rng, 5) * 1e-9, pick(rng, 2) == 0});
  }
  std::int64_t key = 0;
  for (int round = 0; round < rounds; ++round) {
    for (auto& rank : b.ranks) rank.push_back(task(pick(rng, kinds) * (round == 0 ? 1 : 0)));
    for (const Meeting& m : meetings) {
      for (const int who : {m.left, m.right}) {
        auto& rank = b.ranks[static_cast<std::size_t>(who)];
        rank.push_back(meet({{key, m.seconds, 2}},
                            m.waits ? std::vector<int>{static_cast<int>(rank.size()) - 1} : std::vector<int>{}, m.stream));
      }
      ++key;
    }
  }
  return b;
}

std::span<const std::int32_t> links_of(std::int32_t plan) { return kWays[static_cast<std::size_t>(plan % 6)]; }

struct Counts {
  std::int64_t flows = 0, skipped = 0, joined = 0;
  void add(const replay::Report& r) { flows += r.flows, skipped += r.skipped, joined += r.joined; }
};

void check_program(Rng& rng, Counts& counts) {
  const auto make = [](replay::Time) { return std::make_unique<Links>(); };
  const auto items = random_items(rng);
  Links plain;
  replay::Replay exact(make, plan_of, {.tolerance = 0}, {}, links_of), loose(make, plan_of, {.tolerance = 0.3}, {}, links_of),
      one(make, plan_of, {.tolerance = 0});
  const auto want = run(plain, items);
  const auto got = run(exact, items);
  for (std::size_t i = 0; i < items.size(); ++i)
    require(same(got[i], want[i]), "flow " + std::to_string(i) + " ends when it does without replay");
  const auto again = run(one, items);
  for (std::size_t i = 0; i < items.size(); ++i)
    require(same(again[i], want[i]), "flow " + std::to_string(i) + " ends when it does, all in one episode");
  const replay::Report r = exact.report();
  require(r.shifted == 0 && r.error_max == 0 && r.error_total == 0 && r.checked_max == 0, "tolerance 0 has no error");
  counts.add(r);
  for (const double end : run(loose, items)) require(end >= 0, "every flow ends");
  require(loose.report().skipped <= loose.report().flows, "no more is skipped than there is");

  auto b = random_steps(rng);
  Links below;
  replay::Replay replayed(make, plan_of, {.tolerance = 0}, {}, links_of);
  const auto slow = wt::exec::run(b.build(), below), fast = wt::exec::run(b.build(), replayed);
  for (std::size_t i = 0; i < slow.end.size(); ++i)
    require(same(slow.begin[i], fast.begin[i]) && same(slow.end[i], fast.end[i]), "a step is the same with replay");
  counts.add(replayed.report());
  replay::Replay roughly(make, plan_of, {.tolerance = 0.3}, {}, links_of);
  require(wt::exec::run(b.build(), roughly).makespan > -1, "a step ends");
}

}  // namespace

int main(int argc, char** argv) {
  const int programs = argc > 1 ? std::atoi(argv[1]) : 3000;
  const auto seed = static_cast<std::uint64_t>(argc > 2 ? std::atoll(argv[2]) : 1);
  Counts counts;
  for (int n = 0; n < programs; ++n) {
    Rng rng(seed * 1000003 + static_cast<std::uint64_t>(n));
    try {
      check_program(rng, counts);
    } catch (const std::exception& error) {
      std::cerr << "program " << n << " of seed " << seed << ": " << error.what() << "\n";
      return EXIT_FAILURE;
    }
  }
  std::cout << programs << " programs, " << counts.flows << " flows, " << counts.skipped << " of them skipped, " << counts.joined
            << " episodes joined\n";
  return EXIT_SUCCESS;
}
