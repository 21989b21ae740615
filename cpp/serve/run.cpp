#include "serve/run.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <queue>
#include <utility>

#include "base/check.h"

namespace wt::serve {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Time, arrivals and what is counted while a lane runs.
class Clock {
 public:
  Clock(const Load& load, const Setting& setting)
      : load_(load), setting_(setting), then_(load.after.empty() ? 0 : load.size(), -1) {
    outcome.sent = outcome.first = outcome.last = Rows<double>(load.size(), -1.0);
    for (Number request = 0; request < load.after.size(); ++request) {
      if (load.after[request] >= 0) then_[load.after[request]] = request;
    }
    if (load.is_open()) {
      for (Number place = 0; place < load.arrival.size(); ++place) ask(load.arrival[place]);
    } else {
      for (Number user = 0; user < load.users; ++user) ask(0.0);
    }
  }

  // Requests that the scheduler sees now wait, if it looks.
  void send(Lane& lane) {
    if (since < static_cast<double>(setting_.limits.polls)) return;
    since = 0.0;
    const double moment = setting_.limits.ahead && !lane.running.empty() ? std::min(now, began) : now;
    while (!coming_.empty() && coming_.top().first <= moment) {
      lane.waiting.push_back(coming_.top().second);
      coming_.pop();
    }
  }

  void skip_to(double moment) {
    now = std::max(now, moment);
    since = began = kNever;
  }

  [[nodiscard]] double next_arrival() const { return coming_.empty() ? kNever : coming_.top().first; }
  [[nodiscard]] double until_arrival() const { return coming_.empty() ? kNever : coming_.top().first - now; }

  void end(const Ended& ended) {
    for (const Number request : ended.emitted) {
      if (outcome.first[request] < 0.0) outcome.first[request] = now;
    }
    for (const Number request : ended.done) outcome.last[request] = now;
    if (!load_.is_open()) {
      for (std::size_t place = 0; place < ended.done.size(); ++place) ask(now);
    }
    if (!then_.size()) return;
    for (const Number request : ended.done) {
      const Number follows = then_[request];
      if (follows >= 0) send_at(now + (load_.pauses.empty() ? load_.pause : load_.pauses[follows]), follows);
    }
  }

  double now = 0.0, since = kNever, began = kNever;
  Outcome outcome;

 private:
  using Arrival = std::pair<double, Number>;

  void ask(double moment) {
    if (next_ >= load_.size()) return;
    const Number request = next_++;
    if (load_.after.empty() || load_.after[request] < 0) send_at(moment, request);
  }

  void send_at(double moment, Number request) {
    outcome.sent[request] = moment;
    if (moment < came_) free_ = 0.0;  // arrivals are known ahead, and what follows on others comes between them
    came_ = moment;
    const double begin = std::max(moment, free_), tokens = setting_.tokenise * static_cast<double>(load_.prompt[request]);
    free_ = begin + setting_.handle + tokens;
    coming_.emplace(begin + setting_.front + tokens, request);
  }

  const Load& load_;
  const Setting& setting_;
  Rows<Number> then_;
  Number next_ = 0;
  double free_ = 0.0, came_ = 0.0;  // when the front end takes the next request, and when the last one was sent
  std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> coming_;
};

struct Rank {
  Lane lane;
  std::unique_ptr<Rules> rules;
  Clock clock;
  Number count;
};

// What a rank computes in a pass.
struct Booked {
  Rank* rank;
  const Step* step;
  RankPass cost;
};

Booked book(Rank& rank, const Step& step) {
  const Lane& lane = rank.lane;
  RankPass cost;
  cost.ranks = rank.count;
  Number cached = 0, decoded = 0, sampled = 0;
  for (Number place = 0; place < step.size(); ++place) {
    const Number request = step.ids[at(place)], count = step.counts[at(place)];
    const Number computed = lane.computed[request], known = lane.tokens(request);
    if (computed + count >= known) sampled += 1;
    if (computed < known - 1 || lane.emitted[request] == 0) {
      const auto prompt = static_cast<double>(count);
      cost.pass.prompt += count;
      cost.pass.chunks += 1;
      cost.pass.pairs += static_cast<double>(count * computed) + prompt * static_cast<double>(count + 1) / 2.0;
    } else {
      cost.pass.decodes += 1;
      cached += computed + 1;
      decoded += count;
    }
  }
  cost.pass.cached = static_cast<double>(cached);
  cost.pass.verified = decoded - cost.pass.decodes;
  cost.sampled = sampled + cost.pass.verified;
  return {&rank, &step, cost};
}

class Run {
 public:
  Run(const Setting& setting, PassTimes& times, const std::vector<Load>& loads, const std::vector<Number>& counts)
      : setting_(setting), times_(times) {
    for (std::size_t lane = 0; lane < loads.size(); ++lane) {
      ranks_.push_back(
          std::unique_ptr<Rank>(new Rank{Lane(loads[lane], setting.drafts, setting.blocks, setting.limits.block),
                                         rules_of(setting.rules, setting.limits), Clock(loads[lane], setting), counts[lane]}));
      everyone_ += counts[lane];
    }
    steps_.resize(ranks_.size());
  }

  std::vector<Outcome> go() {
    while (true) {
      bool any = false;
      for (std::size_t place = 0; place < ranks_.size(); ++place) {
        Rank& rank = *ranks_[place];
        rank.clock.send(rank.lane);
        steps_[place] = rank.rules->next_step(rank.lane);
        any = any || !steps_[place].empty();
      }
      if (any) {
        run_pass();
        continue;
      }
      double moment = kNever;
      for (const auto& rank : ranks_) moment = std::min(moment, rank->clock.next_arrival());
      if (!std::isfinite(moment)) break;
      for (const auto& rank : ranks_) rank->clock.skip_to(moment);
    }
    std::vector<Outcome> outcomes;
    for (const auto& rank : ranks_) outcomes.push_back(outcome_of(*rank));
    return outcomes;
  }

 private:
  static Outcome outcome_of(Rank& rank) {
    Lane& lane = rank.lane;
    if (!lane.waiting.empty() || !lane.running.empty()) fail("requests were left behind");
    Outcome& out = rank.clock.outcome;
    out.hits = lane.hits;
    out.preempted = lane.preempted;
    out.recomputed = lane.recomputed;
    out.verified = lane.verified;
    out.rejected = lane.rejected;
    out.reused = std::move(lane.reused);
    out.losses = std::move(lane.losses);
    return std::move(out);
  }

  void run_pass() {
    booked_.clear();
    bool prompts = false;
    for (std::size_t place = 0; place < ranks_.size(); ++place) {
      if (steps_[place].empty()) continue;
      booked_.push_back(book(*ranks_[place], steps_[place]));
      prompts = prompts || booked_.back().cost.pass.prompt;
    }
    double seconds = price(booked_), before = 0.0;  // the last of the passes begins so much later
    const Number more = prompts ? 0 : repeats(seconds);
    if (more) {
      seconds = run_seconds(more + 1);
      const auto comes = [&](const auto& rank) { return rank->clock.until_arrival() <= seconds; };
      if (std::any_of(ranks_.begin(), ranks_.end(), comes)) before = run_seconds(more);
      for (const Booked& part : booked_) decode_on(part, more);
    }
    for (std::size_t place = 0; place < ranks_.size(); ++place) {
      book_time(*ranks_[place], steps_[place], seconds, before, prompts, more + 1);
    }
  }

  void book_time(Rank& rank, const Step& step, double seconds, double before, bool prompts, Number passes) {
    Clock& clock = rank.clock;
    Outcome& out = clock.outcome;
    const PagedCache& cache = rank.lane.cache;
    clock.began = clock.now + before;
    clock.now += seconds;
    out.busy += seconds;
    out.prompts += prompts ? seconds : 0.0;
    out.steps += passes;
    clock.since = prompts ? kNever : clock.since + static_cast<double>(passes);
    out.batch += static_cast<double>(step.size()) * static_cast<double>(passes);
    const double used = 1.0 - static_cast<double>(cache.available()) / static_cast<double>(std::max<Number>(cache.total(), 1));
    out.peak = std::max(out.peak, used);
    if (setting_.record) {
      Number tokens = 0;
      for (const Number count : step.counts) tokens += count;
      out.log.push_back(
          {clock.now - seconds, clock.now, size_of(rank.lane.running), size_of(rank.lane.waiting), tokens * passes, passes, used});
    }
    if (!step.empty()) clock.end(rank.lane.finish(step, rank.rules->trims()));
  }

  // Books `passes` more passes that decode the requests of a step.
  void decode_on(const Booked& part, Number passes) const {
    Lane& lane = part.rank->lane;
    Step grown;
    const Number reserve = part.rank->rules->reserve(lane);
    for (const Number request : part.step->ids) grown.add(request, reserve + lane.grown(request, passes));
    if (!grow_all(lane, grown, 0)) fail("blocks of a run of passes lack");
    lane.decode_on(part.step->ids, passes);
    part.rank->rules->fall(passes);
  }

  double price(const std::vector<Booked>& booked) {
    if (ranks_.size() == 1) return times_.seconds(booked.front().cost.pass, booked.front().cost.sampled);
    Number idle = everyone_;
    costs_.clear();
    for (const Booked& part : booked) {
      costs_.push_back(part.cost);
      idle -= part.cost.ranks;
    }
    return times_.meeting_seconds(costs_, idle);
  }

  // How many more passes like the booked one, of `seconds`, come before anything changes on any rank.
  Number repeats(double seconds) {
    Number most = kBeyond;
    for (const Booked& part : booked_) most = std::min(most, most_repeats(part));
    double coming = kNever, since = 0.0;
    for (const auto& rank : ranks_) {
      coming = std::min(coming, rank->clock.until_arrival());
      since = std::max(since, rank->clock.since);
    }
    if (most <= 0 || !std::isfinite(coming)) return std::max<Number>(0, most);
    Number blind = 0;  // before the next look
    if (std::isfinite(since)) blind = std::min(most, std::max<Number>(0, setting_.limits.polls - static_cast<Number>(since) - 1));
    const double fit = std::max(coming, 0.0) / seconds;
    if (fit < static_cast<double>(most)) most = static_cast<Number>(fit);
    while (most > 0 && run_seconds(most) >= coming) most -= 1;  // it comes before the last of these passes begins
    return std::max(most, blind);
  }

  // How often a rank's step comes again if no request comes.
  Number most_repeats(const Booked& part) const {
    const Lane& lane = part.rank->lane;
    const std::vector<Number>& ids = part.step->ids;
    if (ids.size() != lane.running.size() || part.cost.pass.verified != size_of(ids) * lane.drafts.drafts) return 0;
    Number most = std::min({lane.passes_left(ids) - 1, setting_.run, part.rank->rules->repeats(lane)});
    const Number reserve = part.rank->rules->reserve(lane);
    while (most > 0) {
      Number need = 0;
      for (const Number request : ids) {
        const Number tokens = lane.computed[request] + reserve + lane.grown(request, most);
        need += std::max<Number>(lane.cache.blocks_for(tokens) - lane.cache.held[request], 0);
      }
      if (need <= lane.cache.available()) break;
      most /= 2;
    }
    return most;
  }

  // Seconds of `passes` that decode the same requests, of which the booked one is the first.
  double run_seconds(Number passes) {
    longer_ = booked_;
    for (Booked& part : longer_) {
      const Lane& lane = part.rank->lane;
      const double grown = lane.drafts.any() ? lane.mean_grown(part.step->ids, passes)
                                             : static_cast<double>(part.cost.pass.decodes * (passes - 1)) / 2.0;
      part.cost.pass.cached += grown;
    }
    return static_cast<double>(passes) * price(longer_);
  }

  const Setting& setting_;
  PassTimes& times_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<Step> steps_;
  std::vector<Booked> booked_, longer_;
  std::vector<RankPass> costs_;
  Number everyone_ = 0;
};

}  // namespace

std::vector<Outcome> run(const Setting& setting, PassTimes& times, const std::vector<Load>& loads,
                         const std::vector<Number>& counts) {
  return Run(setting, times, loads, counts).go();
}

}  // namespace wt::serve
