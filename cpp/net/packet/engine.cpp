#include "net/packet/engine.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "base/check.h"
#include "net/packet/deadlock.h"
#include "net/packet/partition.h"
#include "net/packet/skip.h"
#include "net/packet/windows.h"

namespace wt::net::packet {

namespace {

Result collect(const World& w, Stats stats, Time end) {
  Result r;
  r.stats = stats;
  r.end = seconds(end);
  const auto known = [](Time t) { return t == kForever ? std::numeric_limits<double>::quiet_NaN() : seconds(t); };
  for (std::size_t i = 0; i < w.delivered.size(); ++i) {
    r.delivered.push_back(known(w.delivered[i]));
    r.acked.push_back(known(w.acked[i]));
  }
  for (const Link& link : w.links) {
    r.link_data.push_back(link.left);
    r.link_control.push_back(link.control_bytes);
    r.link_peak.push_back(link.peak);
    r.link_paused.push_back(seconds(link.stopped_for));
  }
  if (w.counts) r.loads = loads_of(w.loads);
  if (w.options.sample <= 0) return r;
  const auto samples = static_cast<std::size_t>(end / static_cast<Time>(w.options.sample / kPicosecond + 0.5)) + 1;
  for (std::size_t i = 0; i < samples; ++i) r.sample_time.push_back(static_cast<double>(i) * w.options.sample);
  for (const Track& t : w.link_tracks)
    for (std::size_t i = 0; i < samples; ++i) {
      r.queue.push_back(static_cast<std::int64_t>(t.first[i]));
      r.sent.push_back(t.second[i]);
      r.pauses.push_back(t.third[i]);
    }
  for (const Track& t : w.lane_tracks)
    for (std::size_t i = 0; i < samples; ++i) {
      r.rate.push_back(t.first[i]);
      r.acknowledged.push_back(t.second[i]);
      r.cnps.push_back(t.third[i]);
    }
  return r;
}

}  // namespace

Result run(const fabric::Graph& graph, const Paths& paths, const Lanes& lanes, const Options& options, const Faults& faults,
           const Poll& poll) {
  World world(graph, paths, lanes, options, faults);
  const std::int32_t parts_wanted = options.parts > 0 ? options.parts : std::max(options.threads, parts_by_size(world));
  const std::int32_t count = partition(world, options.skip ? 1 : parts_wanted);
  const Time span = world.span();
  if (world.telemetry)
    for (std::int32_t i = 0; i < count; ++i) world.traces.push_back(std::make_unique<Traces>());
  std::vector<std::unique_ptr<Part>> parts;
  for (std::int32_t i = 0; i < count; ++i) parts.push_back(std::make_unique<Part>(world, i, span));
  std::vector<std::vector<std::uint32_t>> mine(parts.size());
  for (std::size_t i = 0; i < lanes.src.size(); ++i)
    mine[world.nodes[graph.endpoint[lanes.src[i]]].part].push_back(static_cast<std::uint32_t>(i));
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i]->start(mine[i]);

  const auto bytes = static_cast<double>(std::accumulate(lanes.bytes.begin(), lanes.bytes.end(), std::int64_t{0}));
  bool stopped = false;
  const auto stop = [&](std::int64_t arrived) {
    return stopped = poll && poll(bytes > 0 ? std::min(1.0, static_cast<double>(arrived) / bytes) : 1.0);
  };
  std::optional<Skipper> skipper;
  if (options.skip) skipper.emplace(world, *parts[0]);
  try {
    if (skipper) {
      const std::int64_t slab = std::max<std::int64_t>(1024, static_cast<std::int64_t>(lanes.src.size()));
      while (parts[0]->run(kForever, slab)) {
        skipper->look();
        if (stop(parts[0]->arrived())) break;
      }
    } else if (count == 1) {
      while (parts[0]->run(kForever, kSlab))
        if (stop(parts[0]->arrived())) break;
    } else {
      Crew crew(std::min(options.threads, count));
      Windows(parts, lookahead(world), crew).run(kForever, stop);
    }
  } catch (const Error&) {
    check_deadlock(world);  // a better explanation, if there is one
    throw;
  }
  Stats stats;
  std::int64_t finished = 0;
  Time end = 0;
  for (const auto& part : parts) {
    stats.add(part->stats);
    finished += part->finished();
    end = std::max(end, part->last());
  }
  if (!stopped && finished != 2 * static_cast<std::int64_t>(lanes.src.size())) explain(world);
  for (const auto& part : parts) part->sample_to(end);
  Result r = collect(world, stats, end);
  if (skipper) {
    r.skipped_share = skipper->share();
    r.skipped_time = seconds(skipper->skipped());
    r.skip_error = skipper->error() / 1e12;
    r.end += r.skipped_time;
    for (std::size_t i = 0; i < r.link_data.size(); ++i) r.link_data[i] += skipper->link_bytes[i];
  }
  r.partitions = count;
  r.stopped = stopped;
  return r;
}

}  // namespace wt::net::packet
