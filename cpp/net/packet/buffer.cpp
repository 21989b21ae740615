// What a node admits and when it pauses who sends to it. Ingress accounting with a reserve, a shared pool under a dynamic threshold
// alpha * (free bytes of the pool), and headroom for what comes after a pause.
//
// Packets that have left but whose service nobody has worked out yet are still counted, so the counters are upper bounds. While
// even those stay below the threshold nothing can happen; only otherwise the node's ports are brought up to date. While an ingress
// is paused, each start of service at its node is an event, so a pause ends at the exact moment.
#include <algorithm>

#include "net/packet/part.h"

namespace wt::net::packet {

namespace {

void hold(Node& node, Ingress& in, std::int64_t size, std::int64_t reserve) {
  const std::int64_t before = std::max<std::int64_t>(0, in.held - reserve);
  in.held += static_cast<std::int32_t>(size);
  node.shared += std::max<std::int64_t>(0, in.held - reserve) - before;
}

}  // namespace

std::int64_t Part::threshold(const Node& node) const {
  return node.fixed > 0 ? node.fixed : (node.alpha * std::max<std::int64_t>(0, node.pool - node.shared)) >> 16;
}

bool Part::admit(std::uint32_t out, const Frame& frame, std::int32_t in) {
  const std::int32_t at = w_.info[out].from;
  Node& node = w_.nodes[at];
  if (node.loss == Loss::kPause) {
    Ingress& ingress = w_.ingress[in];
    const std::int64_t shared = ingress.held + std::int64_t{frame.size} - w_.reserve;
    if (ingress.headroom == 0 && !ingress.paused && shared < threshold(node) - frame.size) [[likely]] {
      hold(node, ingress, frame.size, w_.reserve);
      return true;
    }
    return admit_closely(node, at, ingress, in, frame.size);
  }
  if (node.loss == Loss::kCredits) return true;
  Link& link = w_.links[out];
  const auto admits = [&] {
    return (node.alpha * (node.pool - node.used)) >> 16 > link.joined - link.left && node.used + frame.size <= node.pool;
  };
  if (!admits()) {
    settle(at);
    if (!admits()) return false;
  }
  node.used += frame.size;
  return true;
}

bool Part::admit_closely(Node& node, std::int32_t at, Ingress& in, std::int32_t link, std::int64_t size) {
  settle(at);
  if (in.held + size - w_.reserve > threshold(node)) {
    if (in.headroom + size > std::int64_t{in.room} + in.spare && w_.is_switch(at)) return false;
    in.headroom += static_cast<std::int32_t>(size);
  } else {
    hold(node, in, size, w_.reserve);
  }
  const std::int64_t shared = std::max<std::int64_t>(0, in.held - w_.reserve);
  if (in.paused || (in.headroom == 0 && shared < threshold(node))) return true;
  in.paused = true;
  ++(w_.is_switch(at) ? stats.pauses : stats.inner_pauses);
  node.watched = true;
  if (++node.paused == 1)
    for (std::int32_t i = w_.out_start[at]; i < w_.out_start[at + 1]; ++i)
      watch_from(static_cast<std::uint32_t>(w_.out[i]), w_.links[w_.out[i]]);
  send_control(static_cast<std::uint32_t>(w_.info[link].reverse), local(Kind::kPause));
  if (w_.is_switch(at)) in.spare = late_bytes(link);
  return true;
}

// Bytes that the sender of `link` puts on it while a pause waits longer than `room` counts. Switches send a pause before all other
// frames; here control frames keep their order, and ACKs that are as large as packets fill the way back.
std::int32_t Part::late_bytes(std::int32_t link) const {
  const Link& back = w_.links[w_.info[link].reverse];
  const auto counted = static_cast<Time>(serial(back.cost, static_cast<std::uint64_t>(w_.full + 4 * w_.options.control)));
  const auto late = static_cast<double>(std::max<Time>(0, back.free - now_ - counted));
  return static_cast<std::int32_t>(std::min(1e9, late * kPicosecond * w_.links[link].rate));
}

void Part::release(const Frame& frame, std::int32_t at) {
  Node& node = w_.nodes[at];
  if (node.loss == Loss::kDrop) {
    node.used -= frame.size;
    return;
  }
  if (node.loss == Loss::kCredits) {
    ++stats.events;  // the start of this service was watched
    give_back(frame.other, frame.size);
    return;
  }
  Ingress& in = w_.ingress[frame.other];
  std::int64_t size = frame.size;
  if (in.headroom > 0) [[unlikely]] {
    const std::int64_t given = std::min<std::int64_t>(size, in.headroom);
    in.headroom -= static_cast<std::int32_t>(given);
    size -= given;
  }
  hold(node, in, -size, w_.reserve);
  if (node.paused == 0) [[likely]]
    return;
  ++stats.events;  // the start of this service was watched
  resume_some(at, node);
}

void Part::resume_some(std::int32_t at, Node& node) {
  for (std::int32_t i = w_.out_start[at]; i < w_.out_start[at + 1] && node.paused > 0; ++i) {
    const std::int32_t back = w_.out[i];
    const std::int32_t link = w_.info[back].reverse;
    if (link < 0 || !w_.ingress[link].paused) continue;
    Ingress& in = w_.ingress[link];
    const std::int64_t shared = std::max<std::int64_t>(0, in.held - w_.reserve);
    const bool low = node.fixed > 0 ? shared <= w_.resume_at : shared == 0 || shared + w_.resume <= threshold(node);
    if (in.headroom > 0 || !low) continue;
    in.paused = false;
    node.watched = --node.paused > 0;
    send_control(static_cast<std::uint32_t>(back), local(Kind::kResume));
  }
}

// Brings all ports of a node up to date.
void Part::settle(std::int32_t at) {
  for (std::int32_t i = w_.out_start[at]; i < w_.out_start[at + 1]; ++i) {
    const std::int32_t l = w_.out[i];
    advance(static_cast<std::uint32_t>(l), w_.links[l], now_);
  }
}

// With credits: bytes of what came in over a link are free again. The sender is told now and then.
void Part::give_back(std::int32_t link, std::int64_t size) {
  Ingress& in = w_.ingress[link];
  in.held += static_cast<std::int32_t>(size);
  if (in.held < w_.credit_step) return;
  Frame frame = local(Kind::kCredit);
  frame.other = in.held;
  in.held = 0;
  send_control(static_cast<std::uint32_t>(w_.info[link].reverse), frame);
}

void Part::grant(std::uint32_t l, std::int64_t size) {
  Link& link = w_.links[l];
  advance(l, link, now_);
  link.credits = std::min(link.credits + size, link.granted);
  if (link.credits >= w_.full) stop(l, kNoCredit, false);
}

void Part::halt(Link& link, std::uint8_t why, Time at) {
  if (link.stopped == 0) link.stopped_at = at;
  link.stopped |= why;
}

// A port may not begin services, or may again.
void Part::stop(std::uint32_t l, std::uint8_t why, bool on) {
  Link& link = w_.links[l];
  advance(l, link, now_);
  if (((link.stopped & why) != 0) == on) return;
  if (on) {
    halt(link, why, now_);
    if (why == kPaused) ++link.pauses;
    return;
  }
  link.stopped &= static_cast<std::uint8_t>(~why);
  if (link.stopped != 0) return;
  link.stopped_for += now_ - link.stopped_at;
  link.free = std::max(link.free, now_);
  if (link.source >= 0) advance_on(l, link, now_ + 1);
  if (link.due == kForever) arm(l, link);
  if (w_.nodes[w_.info[l].from].watched) watch_from(l, link);
}

}  // namespace wt::net::packet
