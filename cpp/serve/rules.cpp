#include "serve/rules.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/check.h"

namespace wt::serve {

double pairwise_sum(const double* values, std::size_t count) {
  if (count < 8) {
    double sum = -0.0;
    for (std::size_t place = 0; place < count; ++place) sum += values[place];
    return sum + 0.0;
  }
  if (count <= 128) {
    std::array<double, 8> sums{};
    std::copy_n(values, 8, sums.begin());
    std::size_t place = 8;
    for (; place < count - count % 8; place += 8) {
      for (std::size_t part = 0; part < 8; ++part) sums[part] += values[place + part];
    }
    double sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    for (; place < count; ++place) sum += values[place];
    return sum;
  }
  std::size_t half = count / 2;
  half -= half % 8;
  return pairwise_sum(values, half) + pairwise_sum(values + half, count - half);
}

bool grow_all(Lane& lane, const Step& step, Number more) {
  const auto need = [&](Number place) {
    const Number request = step.ids[at(place)];
    return lane.cache.blocks_for(lane.computed[request] + step.counts[at(place)] + more) - lane.cache.held[request];
  };
  Number total = 0;
  for (Number place = 0; place < step.size(); ++place) total += std::max<Number>(need(place), 0);
  if (!lane.cache.take_all(total)) return false;
  if (!total) return true;
  for (Number place = 0; place < step.size(); ++place) {
    lane.cache.held[step.ids[at(place)]] += std::max<Number>(need(place), 0);
  }
  return true;
}

namespace {

class Vllm final : public Rules {
 public:
  using Rules::Rules;

  Step next_step(Lane& lane) override {
    const Number before = lane.preempted;
    Step step;
    Number budget = limits_.step_tokens;
    if (!run_all(lane, step, budget)) run(lane, step, budget);
    if (lane.preempted == before) admit(lane, step, budget);
    return step;
  }

  [[nodiscard]] Number reserve(const Lane& lane) const override { return 1 + 2 * lane.drafts.drafts; }
  [[nodiscard]] bool trims() const override { return false; }

 private:
  // Running requests in one piece, where the blocks suffice for all.
  bool run_all(Lane& lane, Step& step, Number& budget) const {
    Step all;
    Number left = limits_.step_tokens;
    for (const Number request : lane.running) {
      const Number count = std::min(lane.count_wanted(request), left);
      if (count <= 0) continue;
      all.add(request, count);
      left -= count;
    }
    if (!grow_all(lane, all, lane.drafts.drafts)) return false;
    if (lane.load.has_names()) {
      for (Number place = 0; place < all.size(); ++place) name_counted(lane, all.ids[at(place)], all.counts[at(place)]);
    }
    step = std::move(all);
    budget = left;
    return true;
  }

  static void name_counted(Lane& lane, Number request, Number count) {
    if (count > 1) lane.name_blocks(request, std::min(lane.computed[request] + count, lane.tokens(request)));
  }

  // One by one; the last of them gives up its blocks where they lack.
  void run(Lane& lane, Step& step, Number& budget) const {
    for (Number place = 0; place < size_of(lane.running) && budget > 0; ++place) {
      const Number request = lane.running[at(place)];
      const Number count = std::min(lane.count_wanted(request), budget);
      if (!count) continue;
      while (!lane.cache.grow(request, lane.computed[request] + count + lane.drafts.drafts)) {
        const Number victim = lane.running.back();
        lane.running.pop_back();
        lane.forget(victim, limits_.keeps_blocks);
        lane.waiting.push_front(victim);
        if (victim == request) return;
      }
      name_counted(lane, request, count);
      step.add(request, count);
      budget -= count;
    }
  }

  void admit(Lane& lane, Step& step, Number budget) const {
    while (!lane.waiting.empty() && budget > 0 && size_of(lane.running) < limits_.running) {
      const Number request = lane.waiting.front();
      const Number cached = lane.count_cached(request), tokens = lane.tokens(request);
      const Number computed = std::max(cached * lane.cache.block(), lane.computed[request]);
      const Number count = std::min(tokens - computed, budget);
      const Number whole = limits_.reserves_prompt ? tokens : computed + count;
      if (!lane.cache.has_room(whole, lane.names(request), cached)) return;
      const Number found = lane.reuse(request, cached);
      lane.cache.grow(request, computed + count);
      lane.admit(found);
      lane.name_blocks(request, lane.computed[request] + count);
      step.add(request, count);
      budget -= count;
    }
  }
};

class Sglang final : public Rules {
 public:
  explicit Sglang(const Limits& limits) : Rules(limits), ratio_(limits.start) {}

  Step next_step(Lane& lane) override {
    Step step = prefill(lane);
    if (!step.empty()) return step;
    if (!lane.running.empty()) return decode(lane);
    ratio_ = limits_.start;
    return step;
  }

  [[nodiscard]] Number repeats(const Lane& lane) const override { return lane.waiting.empty() ? kBeyond : limits_.look; }

  void fall(Number passes) override {
    const double least = limits_.start * limits_.floor;
    ratio_ = std::max(least, ratio_ - static_cast<double>(passes) * (limits_.start - least) / limits_.fall);
  }

 private:
  Step prefill(Lane& lane) {
    Number chunk = limits_.chunk, whole = limits_.step_tokens;
    Step step;
    if (chunked_ >= 0) {
      const Number request = chunked_, count = std::min(lane.tokens_left(request), chunk);
      if (lane.cache.grow(request, lane.computed[request] + count)) {
        step.add(request, count);
        chunk -= count;
        whole -= count;
        chunked_ = lane.tokens_left(request) > count ? request : -1;
      }
    }
    if (!lane.waiting.empty() && chunked_ < 0) admit(lane, chunk, whole, step);
    return step;
  }

  void admit(Lane& lane, Number chunk, Number whole, Step& step) {
    std::vector<double> expected;
    for (const Number request : lane.running) {
      expected.push_back(static_cast<double>(std::min(lane.load.output[request] - lane.emitted[request], limits_.clip)) * ratio_);
    }
    const PagedCache& cache = lane.cache;
    double room = static_cast<double>(cache.available()) -
                  pairwise_sum(expected.data(), expected.size()) / static_cast<double>(cache.block());
    while (!lane.waiting.empty() && chunk > 0 && whole > 0 && size_of(lane.running) < limits_.running) {
      const Number request = lane.waiting.front();
      const Number found = lane.reuse(request, lane.count_cached(request));
      const Number extend = lane.tokens_left(request);
      const Number ahead = std::min(lane.load.output[request] - lane.emitted[request], limits_.clip);
      const Number pages = cache.blocks_for(extend) + cache.blocks_for(ahead);
      const Number count = std::min(extend, chunk);
      const bool fits_alone = lane.running.empty() && cache.blocks_for(extend) < cache.available();
      const bool lacks = static_cast<double>(pages + 1) >= room && !fits_alone;
      if (lacks || (!step.empty() && extend > whole) || !lane.cache.grow(request, lane.computed[request] + count)) {
        lane.turn_away(request);
        return;
      }
      lane.admit(found);
      step.add(request, count);
      room -= static_cast<double>(pages);
      chunk -= count;
      whole -= count;
      if (count < extend) {
        chunked_ = request;
        return;
      }
    }
  }

  // One token for all running requests whose prompt is computed, after retractions.
  Step decode(Lane& lane) {
    Step step;
    for (const Number request : lane.running) {
      if (request != chunked_) step.add(request, 1 + lane.drafts.drafts);
    }
    bool retracted = false;
    while (!step.empty() && !grow_all(lane, step, 0)) {
      if (step.size() == 1) return {};
      Number last = 0;  // the fewest outputs, of equal the longest prompt, of equal the last
      for (Number place = 1; place < step.size(); ++place) {
        const Number request = step.ids[at(place)], other = step.ids[at(last)];
        const std::pair<Number, Number> mine{-lane.emitted[request], lane.load.prompt[request]};
        if (mine >= std::pair<Number, Number>{-lane.emitted[other], lane.load.prompt[other]}) last = place;
      }
      const Number victim = step.ids[at(last)];
      std::erase(lane.running, victim);
      lane.forget(victim, false);
      lane.waiting.push_back(victim);
      step.ids.erase(step.ids.begin() + last);
      step.counts.pop_back();
      retracted = true;
    }
    if (step.empty()) return step;
    if (!retracted) {
      fall(1);
      return step;
    }
    Number emitted = limits_.retract_ahead * step.size(), outputs = 1;
    for (const Number request : step.ids) {
      emitted += lane.emitted[request];
      outputs += lane.load.output[request];
    }
    ratio_ = std::min(1.0, static_cast<double>(emitted) / static_cast<double>(outputs));
    return step;
  }

  Number chunked_ = -1;
  double ratio_;
};

class Trtllm final : public Rules {
 public:
  using Rules::Rules;

  Step next_step(Lane& lane) override {
    start(lane);
    Step step;
    Number room = limits_.step_tokens;
    const Number wanted_each = 1 + lane.drafts.drafts;
    // Of a prompt whose last token is left nothing is drafted yet.
    const auto generates = [&lane](Number request) { return lane.tokens_left(request) == 1 && lane.emitted[request] > 0; };
    for (const Number request : lane.running) {
      if (!generates(request)) continue;
      if (room < wanted_each) break;
      step.add(request, wanted_each);
      room -= wanted_each;
    }
    for (const Number request : lane.running) {
      if (generates(request)) continue;
      const Number wanted = lane.tokens_left(request);
      if (wanted > room && !limits_.cuts_prompts && wanted <= limits_.step_tokens) break;
      const Number count = wanted <= room ? wanted : room - room % lane.cache.block();
      if (count <= 0) break;
      step.add(request, count);
      room -= count;
    }
    if (!step.empty() && !grow_all(lane, step, 0)) fail("blocks were promised");
    return step;
  }

 private:
  // Starts waiting requests whose blocks can be promised.
  void start(Lane& lane) const {
    if (lane.waiting.empty()) return;
    const auto whole = [&](Number request) {
      return lane.cache.blocks_for(lane.load.prompt[request] + lane.load.output[request] + lane.drafts.drafts);
    };
    Number promised = 0;
    for (const Number request : lane.running) promised += whole(request);
    while (!lane.waiting.empty() && size_of(lane.running) < limits_.running) {
      const Number request = lane.waiting.front(), need = whole(request);
      if (promised + need > lane.cache.total()) return;
      lane.admit(lane.reuse(request, lane.count_cached(request)));
      promised += need;
    }
  }
};

}  // namespace

std::unique_ptr<Rules> rules_of(const std::string& name, const Limits& limits) {
  if (name == "vllm") return std::make_unique<Vllm>(limits);
  if (name == "sglang") return std::make_unique<Sglang>(limits);
  if (name == "trtllm") return std::make_unique<Trtllm>(limits);
  fail("no scheduler of the core is called ", name);
}

}  // namespace wt::serve
