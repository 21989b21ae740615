// The requests of one lane while they are served, as windtunnel.serving.lane has them.
#pragma once

#include <deque>
#include <vector>

#include "serve/blocks.h"
#include "serve/rows.h"

namespace wt::serve {

// Who asks; windtunnel.serving.load.ServeLoad. The names of request r are `groups[group_start[r]]` and on, of which `named[r]`
// blocks have one, `per` in a group; all three are empty for a load without names.
struct Load {
  View<Number> prompt, output;
  View<double> arrival;
  Number users = 0;
  View<Number> after;  // empty: nobody waits for another one
  View<double> pauses;
  double pause = 0.0;
  bool outputs_named = false;
  View<Number> groups, group_start, named;
  Number per = 1;

  [[nodiscard]] Number size() const { return prompt.size(); }
  [[nodiscard]] bool is_open() const { return !arrival.empty(); }
  [[nodiscard]] bool has_names() const { return !group_start.empty(); }
};

// Drafted tokens, and the row of passes that says how many of them stay; windtunnel.serving.speculation.Speculation.
struct Drafts {
  Number drafts = 0;
  View<Number> tokens, sums, areas;
  Number row = 1, ahead = 0, shift = 0;
  [[nodiscard]] bool any() const { return !tokens.empty(); }
};

// A forward pass: requests, and how many tokens each computes.
struct Step {
  std::vector<Number> ids, counts;
  [[nodiscard]] bool empty() const { return ids.empty(); }
  [[nodiscard]] Number size() const { return size_of(ids); }
  void add(Number request, Number count) {
    ids.push_back(request);
    counts.push_back(count);
  }
};

// Requests that emitted a token in a pass, and those of them that are done.
struct Ended {
  std::vector<Number> emitted, done;
};

class Lane {
 public:
  Lane(const Load& load, const Drafts& drafts, Number blocks, Number block);

  [[nodiscard]] Number tokens(Number request) const { return load.prompt[request] + emitted[request]; }
  [[nodiscard]] Number tokens_left(Number request) const { return tokens(request) - computed[request]; }
  // Tokens that a running request would compute in a pass without limits.
  [[nodiscard]] Number count_wanted(Number request) const;
  [[nodiscard]] Number count_cached(Number request) const;
  [[nodiscard]] Number passes_left(const std::vector<Number>& ids) const;
  // Tokens that `passes` passes add to a request that decodes.
  [[nodiscard]] Number grown(Number request, Number passes) const;
  // Tokens that have come out of all of `ids` before a pass, in the mean of the next `passes`.
  [[nodiscard]] double mean_grown(const std::vector<Number>& ids, Number passes) const;
  [[nodiscard]] BlockNames names(Number request) const;

  Number reuse(Number request, Number found);
  void name_blocks(Number request, Number tokens);
  void admit(Number found);
  void turn_away(Number request);
  void forget(Number request, bool keeps);
  void decode_on(const std::vector<Number>& ids, Number passes);
  // Books a pass; `trims`: the blocks of rejected drafts are given back.
  Ended finish(const Step& step, bool trims);

  const Load& load;
  const Drafts& drafts;
  PagedCache cache;
  std::deque<Number> waiting;
  std::vector<Number> running;
  Rows<Number> computed, emitted, reused, losses;
  Number hits = 0, preempted = 0, recomputed = 0, verified = 0, rejected = 0;

 private:
  void move_on(Number request, Number passes) { places_[request] = (places_[request] + passes) % drafts.row; }

  Rows<Number> places_;
  Rows<char> kept_, own_;  // preempted requests that may find their blocks again; those whose blocks have their own names
};

}  // namespace wt::serve
