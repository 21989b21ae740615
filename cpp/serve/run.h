// Requests through lanes that begin each pass together, as windtunnel.serving.simulate runs them: an event for each pass, or for a
// run of passes that decode the same requests.
#pragma once

#include <string>
#include <vector>

#include "serve/lane.h"
#include "serve/passes.h"
#include "serve/rules.h"

namespace wt::serve {

// What is the same for all lanes. `front`, `tokenise`: seconds from a user's send until the scheduler may see a request, for each
// and for each prompt token, of which the front end has `handle` for each and those of its tokens for one request at a time; `run`:
// passes at most that are booked as one event; `blocks`: of a lane's cache.
struct Setting {
  std::string rules;
  Limits limits;
  Drafts drafts;
  double front = 0.0, handle = 0.0, tokenise = 0.0;
  Number run = 1, blocks = 0;
  bool record = false;
};

// Passes that were booked together; windtunnel.serving.lane.PassRecord.
struct Booking {
  double begin, end;
  Number running, waiting, tokens, passes;
  double used;
};

// What happened on a lane; windtunnel.serving.simulate.LaneResult.
struct Outcome {
  Rows<double> sent, first, last;
  double busy = 0.0, peak = 0.0, batch = 0.0, prompts = 0.0;
  Number steps = 0, hits = 0, preempted = 0, recomputed = 0, verified = 0, rejected = 0;
  Rows<Number> reused, losses;
  std::vector<Booking> log;
};

// Serves each of `loads` on a lane of its own, as `counts` ranks do that share the experts. Fails where requests are left behind.
std::vector<Outcome> run(const Setting& setting, PassTimes& times, const std::vector<Load>& loads,
                         const std::vector<Number>& counts);

}  // namespace wt::serve
