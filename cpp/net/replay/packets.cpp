#include "net/replay/packets.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "base/check.h"

namespace wt::net::replay {

namespace {

void add(packet::Stats& to, const packet::Stats& of, std::int64_t times) {
  for (std::int64_t packet::Stats::*count :
       {&packet::Stats::data_hops, &packet::Stats::ack_hops, &packet::Stats::control_hops, &packet::Stats::events,
        &packet::Stats::drops, &packet::Stats::losses, &packet::Stats::pauses, &packet::Stats::inner_pauses, &packet::Stats::marks,
        &packet::Stats::notifications, &packet::Stats::retransmits, &packet::Stats::timeouts, &packet::Stats::out_of_order,
        &packet::Stats::repeats})
    to.*count += of.*count * times;
}

// Unless ACKs are part of the patterns: what those of a transfer take of a link on their way back.
Options replay_options(const packet::Options& options, Options replay) {
  if (replay.tolerance > 0)
    replay.against = static_cast<double>(options.control) / (options.mtu + options.header) / std::max(1, options.ack_every);
  return replay;
}

}  // namespace

ReplayPackets::ReplayPackets(packet::PlanTable table, const packet::Options& options, const packet::Faults& faults,
                             const Options& replay)
    : table_(std::move(table)),
      options_(options),
      faults_(faults),
      crew_(std::make_shared<packet::Crew>(options.threads)),
      replay_([this](Time begin) { return make(begin); },
              [this](const Flow& flow) {
                const auto found = plan_of_.find(flow.key);
                return found == plan_of_.end() ? -1 : found->second;
              },
              replay_options(options, replay),
              [this](Network& network, std::int32_t) { over(dynamic_cast<packet::PacketNetwork&>(network)); },
              [this](std::int32_t plan) { return std::span<const std::int32_t>(links_[static_cast<std::size_t>(plan)]); },
              [this](std::int32_t plan) { return std::span<const std::int32_t>(back_[static_cast<std::size_t>(plan)]); },
              [this](std::int32_t plan, Time at) { return exposed(plan, at); }) {
  for (std::size_t i = 0; i < table_.key.size(); ++i) plan_of_.emplace(table_.key[i], table_.key_plan[i]);
  auto first = std::make_unique<packet::PacketNetwork>(table_, options_, faults_, crew_);  // checks the table
  partitions_ = first->partitions();
  ahead_ = first->ahead();
  find_links(*first, replay.tolerance == 0);
  find_exposed();
  first->on_pulse([this] {
    if (pulse_) pulse_();
  });
  if (exposed_.empty()) spare_ = std::move(first);  // else each has the faults from its own begin on
}

// What has happened before is in force from the start.
packet::Faults ReplayPackets::faults_from(Time begin) const {
  packet::Faults out{{}, {}, faults_.loss, faults_.bit_error, begin};
  const double origin = seconds(begin);
  std::map<std::int32_t, bool> cable;
  for (const packet::Flap& f : faults_.flaps)
    if (f.time <= origin)
      cable[f.link] = f.up;
    else
      out.flaps.push_back({f.time - origin, f.link, f.up});
  for (const packet::Detour& d : faults_.detours)
    if (d.time > origin) out.detours.push_back({d.time - origin, d.lane, d.path});
  for (const auto& [link, up] : cable)
    if (!up) out.flaps.push_back({0.0, link, false});
  return out;
}

bool ReplayPackets::exposed(std::int32_t plan, Time at) const {
  return !exposed_.empty() && at >= first_fault_ && at <= last_fault_ && exposed_[static_cast<std::size_t>(plan)] != 0;
}

// Plans that data or ACKs of theirs lead over a link that a fault hits, or that a detour leads elsewhere.
void ReplayPackets::find_exposed() {
  const std::size_t links = table_.link_from.size(), plans = links_.size();
  std::vector<std::uint8_t> hit(links, 0);
  std::map<std::int32_t, bool> cable;
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> by_ends;
  for (std::size_t l = 0; l < links; ++l) by_ends[{table_.link_from[l], table_.link_to[l]}] = static_cast<std::int32_t>(l);
  const auto add = [&](std::size_t l) {
    hit[l] = 1;
    if (const auto back = by_ends.find({table_.link_to[l], table_.link_from[l]}); back != by_ends.end())
      hit[static_cast<std::size_t>(back->second)] = 1;
  };
  for (const packet::Flap& f : faults_.flaps) {
    add(static_cast<std::size_t>(f.link));
    cable[f.link] = f.up;
    first_fault_ = std::min(first_fault_, picoseconds(f.time));
    last_fault_ = std::max(last_fault_, picoseconds(f.time));
  }
  for (const packet::Detour& d : faults_.detours) last_fault_ = std::max(last_fault_, picoseconds(d.time));
  for (const auto& [link, up] : cable)
    if (!up) last_fault_ = kForever;
  for (const std::vector<double>* rates : {&faults_.loss, &faults_.bit_error})
    for (std::size_t l = 0; l < rates->size(); ++l)
      if ((*rates)[l] > 0.0) add(l), first_fault_ = 0, last_fault_ = kForever;
  if (std::find(hit.begin(), hit.end(), 1) == hit.end()) return;
  exposed_.assign(plans, 0);
  for (std::size_t p = 0; p < plans; ++p)
    for (const auto* of : {&links_[p], &back_[p]})
      for (const std::int32_t l : *of)
        if (static_cast<std::size_t>(l) < links && hit[static_cast<std::size_t>(l)] != 0) exposed_[p] = 1;
  replay_.expose_from({first_fault_});
  for (const packet::Detour& d : faults_.detours)
    for (std::size_t p = 0; p < plans; ++p)
      if (d.lane >= table_.plan_start[p] && d.lane < table_.plan_start[p + 1]) {
        exposed_[p] = 1;
        const auto path = static_cast<std::size_t>(d.path);
        std::set<std::int32_t> more(links_[p].begin(), links_[p].end());
        for (auto h = table_.path_start[path]; h < table_.path_start[path + 1]; ++h) {
          const std::int32_t l = table_.path_links[static_cast<std::size_t>(h)], to = table_.link_to[static_cast<std::size_t>(l)];
          more.insert(l);
          if (const auto back = by_ends.find({to, table_.link_from[static_cast<std::size_t>(l)]}); back != by_ends.end())
            more.insert(back->second);
          if (options_.loss != packet::Loss::kCredits && is_fabric_switch(to))
            more.insert(static_cast<std::int32_t>(links) + 1 + to);
        }
        links_[p].assign(more.begin(), more.end());
      }
}

bool ReplayPackets::is_fabric_switch(std::int32_t node) const {
  const auto at = static_cast<std::size_t>(node);
  return table_.node_site[at] < 0 && static_cast<fabric::NodeKind>(table_.node_kind[at]) == fabric::NodeKind::kSwitch;
}

void ReplayPackets::find_links(const packet::PacketNetwork& network, bool exact) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> by_ends;
  for (std::size_t l = 0; l < table_.link_from.size(); ++l)
    by_ends[{table_.link_from[l], table_.link_to[l]}] = static_cast<std::int32_t>(l);
  for (std::size_t p = 0; p + 1 < table_.plan_start.size(); ++p) {
    const std::vector<std::int32_t> ways = network.ways(static_cast<std::int32_t>(p));
    std::set<std::int32_t> links(ways.begin(), ways.end()), back;
    for (const std::int32_t l : links) {
      const auto at = static_cast<std::size_t>(l);
      const auto found = by_ends.find({table_.link_to[at], table_.link_from[at]});
      if (found != by_ends.end()) back.insert(found->second);
    }
    if (exact) {
      std::set<std::int32_t> fixed;
      for (auto lane = table_.plan_start[p]; lane < table_.plan_start[p + 1]; ++lane) {
        const auto path = static_cast<std::size_t>(table_.path[static_cast<std::size_t>(lane)]);
        for (auto h = table_.path_start[path]; h < table_.path_start[path + 1]; ++h)
          fixed.insert(table_.path_links[static_cast<std::size_t>(h)]);
      }
      const bool dealt = links != fixed;
      links.insert(back.begin(), back.end());
      // What two plans share beside links counts as one more link: switches deal out what comes from all of them, and those of the
      // fabric divide their buffer among all that is in it.
      const auto more = static_cast<std::int32_t>(table_.link_from.size());
      std::set<std::int32_t> shared;
      if (dealt) shared.insert(more);
      if (options_.loss != packet::Loss::kCredits)
        for (const std::int32_t l : links)
          if (const std::int32_t to = table_.link_to[static_cast<std::size_t>(l)]; is_fabric_switch(to))
            shared.insert(more + 1 + to);
      links.merge(shared);
    }
    links_.emplace_back(links.begin(), links.end());
    back_.emplace_back(back.begin(), back.end());
  }
}

std::unique_ptr<Network> ReplayPackets::make(Time begin) {
  if (spare_) return std::move(spare_);
  std::unique_ptr<packet::PacketNetwork> network;
  if (exposed_.empty() || begin > last_fault_) {
    network = std::make_unique<packet::PacketNetwork>(table_, options_, packet::Faults{}, crew_);
  } else {
    packet::PlanTable table = table_;
    for (const packet::Detour& d : faults_.detours)  // they may go back and forth
      if (d.time <= seconds(begin)) table.path[static_cast<std::size_t>(d.lane)] = d.path;
    network = std::make_unique<packet::PacketNetwork>(std::move(table), options_, faults_from(begin), crew_);
  }
  network->on_pulse([this] {
    if (pulse_) pulse_();
  });
  return network;
}

std::optional<double> ReplayPackets::start(const Flow& flow) {
  const auto found = plan_of_.find(flow.key);
  const bool empty = found != plan_of_.end() && table_.plan_start[static_cast<std::size_t>(found->second)] ==
                                                    table_.plan_start[static_cast<std::size_t>(found->second) + 1];
  return empty ? flow.begin : replay_.start(flow);  // as the packet engine answers
}

void ReplayPackets::over(packet::PacketNetwork& network) {
  network.finish();
  const packet::PlanReport r = network.report(false);
  Tally t;
  t.stats = r.stats;
  for (std::size_t l = 0; l < r.link_data.size(); ++l) {
    if (r.link_data[l] == 0 && r.link_control[l] == 0) continue;
    t.link.push_back(static_cast<std::int32_t>(l));
    t.data.push_back(r.link_data[l]);
    t.control.push_back(r.link_control[l]);
    t.peak.push_back(r.link_peak[l]);
    t.paused.push_back(r.link_paused[l]);
    if (network.loads().empty()) continue;
    t.loads.push_back(network.loads()[l]);
    int shift = 0;  // at most an eighth of the shortest bin that the step can have
    while ((picoseconds(replay_.now()) >> (shift + 1)) >= 8 * Bins<std::int64_t, Sum>::kMost) ++shift;
    t.loads.back().lengthen(shift);
  }
  tallies_.push_back(std::move(t));
}

packet::Loads ReplayPackets::loads() const {
  std::vector<packet::LinkLoad> step(table_.link_from.size());
  for (std::size_t i = 0; i < tallies_.size(); ++i)
    for (std::size_t k = 0; k < tallies_[i].loads.size(); ++k)
      step[static_cast<std::size_t>(tallies_[i].link[k])].add_tags(tallies_[i].loads[k], replay_.uses()[i]);
  for (const Replay::Use& use : replay_.episodes()) {
    const Tally& t = tallies_[static_cast<std::size_t>(use.pattern)];
    for (std::size_t k = 0; k < t.loads.size(); ++k) step[static_cast<std::size_t>(t.link[k])].add_bins(t.loads[k], use.begin);
  }
  return packet::loads_of(step);
}

PacketReport ReplayPackets::report() const {
  PacketReport r;
  packet::PlanReport& step = r.step;
  const std::size_t links = table_.link_from.size(), plans = table_.plan_start.size() - 1;
  step.link_data.resize(links);
  step.link_control.resize(links);
  step.link_peak.resize(links);
  step.link_paused.resize(links);
  for (std::size_t i = 0; i < tallies_.size(); ++i) {
    const Tally& t = tallies_[i];
    const std::int64_t uses = replay_.uses()[i];
    add(step.stats, t.stats, uses);
    add(r.simulated, t.stats, 1);
    for (std::size_t k = 0; k < t.link.size(); ++k) {
      const auto l = static_cast<std::size_t>(t.link[k]);
      step.link_data[l] += t.data[k] * uses;
      step.link_control[l] += t.control[k] * uses;
      step.link_peak[l] = std::max(step.link_peak[l], t.peak[k]);
      step.link_paused[l] += t.paused[k] * static_cast<double>(uses);
    }
  }
  for (std::size_t p = 0; p < plans; ++p) {
    const auto found = replay_.launches().find(static_cast<std::int32_t>(p));
    const Launches of = found == replay_.launches().end() ? Launches{} : found->second;
    step.starts.push_back(of.count);
    step.total.push_back(of.total);
    step.longest.push_back(of.longest);
  }
  step.now = replay_.now();
  step.partitions = partitions_;
  if (options_.loads) step.loads = loads();
  r.replay = replay_.report();
  if (step.stats.data_hops > 0)
    r.skipped_hops = 1.0 - static_cast<double>(r.simulated.data_hops) / static_cast<double>(step.stats.data_hops);
  return r;
}

}  // namespace wt::net::replay
