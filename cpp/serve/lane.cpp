#include "serve/lane.h"

#include <algorithm>

namespace wt::serve {

Lane::Lane(const Load& who, const Drafts& drafted, Number blocks, Number block)
    : load(who),
      drafts(drafted),
      cache(blocks, block, who.size()),
      computed(who.size()),
      emitted(who.size()),
      reused(who.size()),
      losses(who.size()),
      places_(who.size()),
      kept_(who.size()),
      own_(who.size()) {
  if (!drafts.any()) return;
  for (Number request = 0; request < load.size(); ++request) places_[request] = request * drafts.shift % drafts.row;
}

Number Lane::count_wanted(Number request) const {
  const Number left = tokens_left(request);
  return left == 1 && emitted[request] > 0 ? left + drafts.drafts : left;
}

Number Lane::passes_left(const std::vector<Number>& ids) const {
  Number least = Number{1} << 62;
  for (const Number request : ids) {
    Number left = load.output[request] - emitted[request];
    if (drafts.any()) {
      const Number place = places_[request];
      const Number* const first = drafts.sums.data();
      const Number* const found = std::lower_bound(first, first + drafts.sums.size(), drafts.sums[place] + left);
      left = std::min<Number>(found - first - place, drafts.ahead);
    }
    least = std::min(least, left);
  }
  return least;
}

Number Lane::grown(Number request, Number passes) const {
  if (!drafts.any()) return passes;
  const Number place = places_[request];
  return drafts.sums[place + passes] - drafts.sums[place];
}

double Lane::mean_grown(const std::vector<Number>& ids, Number passes) const {
  Number area = 0;
  for (const Number request : ids) {
    const Number place = places_[request];
    area += drafts.areas[place + passes] - drafts.areas[place] - passes * drafts.sums[place];
  }
  return static_cast<double>(area) / static_cast<double>(passes);
}

BlockNames Lane::names(Number request) const {
  BlockNames names;
  if (load.has_names()) names = {load.groups.data() + load.group_start[request], load.per, load.named[request], 0};
  if (own_[request]) names.own = kOwn + request;
  return names;
}

Number Lane::count_cached(Number request) const {
  const Number most = (tokens(request) - 1) / cache.block();  // its last token is computed: the logits are needed
  return std::min(most, cache.match(names(request)));
}

Number Lane::reuse(Number request, Number found) {
  if (found) {
    cache.attach(request, names(request), found);
    computed[request] = found * cache.block();
  }
  return found * cache.block();
}

void Lane::name_blocks(Number request, Number tokens) {
  if (load.has_names()) cache.name(request, names(request), tokens);
}

void Lane::admit(Number found) {
  const Number request = waiting.front();
  waiting.pop_front();
  if (kept_[request]) {
    recomputed -= found;
  } else {
    hits += found;
    reused[request] = found;
  }
  running.push_back(request);
}

void Lane::turn_away(Number request) {
  cache.release(request, 0);
  computed[request] = 0;
}

void Lane::forget(Number request, bool keeps) {
  if (keeps) {
    kept_[request] = 1;
    own_[request] = 1;
    cache.name(request, names(request), computed[request]);
  }
  recomputed += computed[request];
  preempted += 1;
  losses[request] += 1;
  turn_away(request);
}

void Lane::decode_on(const std::vector<Number>& ids, Number passes) {
  Number all = 0;
  for (const Number request : ids) {
    const Number more = grown(request, passes);
    emitted[request] += more;
    computed[request] += more;
    all += more;
    if (drafts.any()) move_on(request, passes);
  }
  if (!drafts.any()) return;
  rejected += size_of(ids) * passes * (1 + drafts.drafts) - all;
  verified += size_of(ids) * passes;
}

Ended Lane::finish(const Step& step, bool trims) {
  Ended ended;
  std::vector<Number> yields(step.ids.size(), 0);
  for (Number place = 0; place < step.size(); ++place) {
    const Number request = step.ids[at(place)], count = step.counts[at(place)], left = tokens_left(request);
    Number kept = count, yield = count == left ? 1 : 0;
    if (drafts.any() && count > left) {
      kept = yield = std::min(drafts.tokens[places_[request]], std::min(count, load.output[request] - emitted[request]));
      rejected += count - kept;
      verified += 1;
      move_on(request, 1);
    }
    computed[request] += kept;
    yields[at(place)] = yield;
  }
  if (load.has_names()) {
    for (Number place = 0; place < step.size(); ++place) {
      const Number request = step.ids[at(place)];
      if (step.counts[at(place)] > 1 || emitted[request] == 0) name_blocks(request, computed[request]);
    }
  }
  for (Number place = 0; place < step.size(); ++place) {
    if (yields[at(place)] <= 0) continue;
    const Number request = step.ids[at(place)];
    emitted[request] += yields[at(place)];
    ended.emitted.push_back(request);
    if (emitted[request] >= load.output[request]) ended.done.push_back(request);
  }
  for (const Number request : ended.done) {
    if (load.outputs_named) name_blocks(request, computed[request]);
    cache.release(request, computed[request]);
    own_[request] = kept_[request] = 0;
  }
  if (!ended.done.empty()) {
    std::erase_if(running, [&](Number request) { return emitted[request] >= load.output[request]; });
  }
  if (trims && drafts.drafts) {
    for (const Number request : step.ids) {
      if (cache.held[request] > 0) cache.give_back(request, computed[request]);
    }
  }
  return ended;
}

}  // namespace wt::serve
