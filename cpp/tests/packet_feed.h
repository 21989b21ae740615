// A packet network that is fed launches while it runs, as the exec core feeds it.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <tuple>
#include <vector>

#include "base/time.h"
#include "net/packet/network.h"
#include "tests/packet_net.h"

namespace packet_net {

// Lanes of plan p are plan_start[p] to plan_start[p + 1]; their dependencies count from the first. Key k launches plan k.
inline wt::net::packet::PlanTable table_of(const Net& net, std::vector<std::int64_t> plan_start) {
  wt::net::packet::PlanTable t;
  t.node_kind = net.kind, t.link_up = net.up, t.node_site = net.site, t.link_from = net.from, t.link_to = net.to;
  t.endpoint = net.endpoint, t.rail = net.rail, t.link_rate = net.rate, t.link_latency = net.latency, t.link_axis = net.axis;
  t.nic_start = net.nic_start, t.path_start = net.path_start, t.path_links = net.path_links;
  t.src = net.src, t.dst = net.dst, t.path = net.path, t.window = net.window, t.group = net.group, t.bytes = net.bytes,
  t.slice = net.slice, t.delay = net.delay, t.rate = net.lane_rate, t.begin = net.begin, t.hold = net.hold;
  t.dep_start = net.dep_start, t.dep_lead = net.dep_lead, t.dep_lane = net.dep_lane;
  t.plan_start = std::move(plan_start);
  for (std::size_t p = 0; p + 1 < t.plan_start.size(); ++p) {
    t.key.push_back(static_cast<std::int64_t>(p));
    t.key_plan.push_back(static_cast<std::int32_t>(p));
  }
  return t;
}

struct Launch {  // of a plan, at a time or so long after another launch has ended
  std::int32_t plan = 0;
  double at = 0;
  int after = -1;
};

// Launches all of them and returns the ends as the network tells them; a launch is the number of its flow.
inline std::vector<wt::net::Completion> feed(wt::net::Network& network, const std::vector<Launch>& launches) {
  using Own = std::tuple<double, std::int32_t>;
  std::priority_queue<Own, std::vector<Own>, std::greater<>> own;
  std::vector<wt::net::Completion> ends;
  const auto over = [&](std::int32_t flow, double at) {
    ends.push_back({flow, at});
    for (std::size_t i = 0; i < launches.size(); ++i)
      if (launches[i].after == flow) own.emplace(at + launches[i].at, static_cast<std::int32_t>(i));
  };
  for (std::size_t i = 0; i < launches.size(); ++i)
    if (launches[i].after < 0) own.emplace(launches[i].at, static_cast<std::int32_t>(i));
  for (;;) {
    const double next = network.next_event();
    if (!own.empty() && std::get<0>(own.top()) <= next) {
      const auto [at, flow] = own.top();
      own.pop();
      const auto plan = launches[static_cast<std::size_t>(flow)].plan;
      if (const auto end = network.start({.id = flow, .key = plan, .begin = at, .clock = at})) over(flow, *end);
    } else if (next == wt::kNever) {
      return ends;
    } else if (const auto end = network.advance()) {
      over(end->id, end->end);
    }
  }
}

}  // namespace packet_net
