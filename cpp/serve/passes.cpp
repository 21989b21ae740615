#include "serve/passes.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace wt::serve {

namespace {

constexpr std::array kSplits{1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0};  // parts into which a kernel may cut a cache
constexpr double kPartial = 0.5;                                     // share of a partial wave's time that is lost

}  // namespace

double Curve::operator()(double where) const {
  const auto above = std::upper_bound(x.begin(), x.end(), where);
  if (above == x.begin()) return y.front();
  if (above == x.end()) return y.back();
  const auto place = static_cast<std::size_t>(above - x.begin()) - 1;
  if (x[place] == where) return y[place];
  return (y[place + 1] - y[place]) / (x[place + 1] - x[place]) * (where - x[place]) + y[place];
}

double LayerCosts::read_tokens(double cached, double decodes) const {
  if (stride == 1.0) return most < 0.0 ? cached : std::min(cached, decodes * most);
  double far = cached / stride;
  if (picked >= 0.0) far = std::min(far, decodes * picked);
  return far + std::min(cached, decodes * window);
}

double LayerCosts::cached_seconds(const Passing& pass) const {
  const auto decodes = static_cast<double>(pass.decodes), verified = static_cast<double>(pass.verified);
  if (scan) return move_seconds(state * (2.0 * decodes + verified)) + kept * decodes;
  if (!attends) return 0.0;
  const double keys = read_tokens(pass.cached, decodes) / decodes;
  const double queries = decodes + verified;
  const double io = 2.0 * queries * heads * wide;
  const double work = 2.0 * queries * heads * keys * wide;
  const double readers = decodes + reread * verified;
  const double moved = readers * keys * groups * elements * width;
  const double bound = std::max((moved + io) / memory, work / rate);
  double busy = 0.0;
  for (const double split : kSplits) {
    const double blocks = readers * groups * split / sms;
    const double waves = std::max(1.0, kPartial * std::ceil(blocks) + (1.0 - kPartial) * blocks);
    const double each = setup + keys / split * key * dim / 128.0;
    const double spent = waves * each + merge * (split > 1.0 ? 1.0 : 0.0);
    if (split == 1.0 || spent < busy) busy = spent;
  }
  double spent = latency + std::pow(std::pow(bound, blend) + std::pow(busy, blend), 1.0 / blend);
  if (indexed) spent = spent + move_seconds(pass.cached * index_bytes);
  return spent;
}

std::size_t PassTimes::PromptHash::operator()(const PromptKey& key) const {
  auto mixed = static_cast<std::uint64_t>(key.kind);
  for (const Number part : {key.chunks, key.each, key.deep}) {
    mixed = (mixed ^ static_cast<std::uint64_t>(part)) * 0x9E3779B97F4A7C15ULL;
    mixed ^= mixed >> 29;
  }
  return static_cast<std::size_t>(mixed);
}

void PassTimes::ask(const PromptPrice* price) {
  price_ = price;
  if (small_model) small_model->ask(price);
}

double PassTimes::seconds(const Passing& pass, Number sampled) {
  const double spent = model_seconds(pass, sampled);
  return drafts ? spent + drafting(pass, sampled - pass.verified) : spent;
}

double PassTimes::model_seconds(const Passing& pass, Number sampled) {
  double total = rows(pad_tokens(pass.tokens()));
  total += sampled ? heads(static_cast<double>(std::max<Number>(sampled, 1))) : 0.0;
  for (Number kind = 0; kind < size_of(kinds); ++kind) {
    const LayerCosts& layer = kinds[at(kind)];
    if (pass.prompt) total += layer.layers * prompt_seconds(kind, layer, pass);
    if (pass.decodes) total += layer.layers * layer.cached_seconds(pass);
  }
  return with_host(total, pass.decodes, is_captured(pass), pass.prompt > 0);
}

double PassTimes::meeting_seconds(std::span<const RankPass> ranks, Number idle) {
  double drafted = 0.0;
  if (drafts) {
    for (const RankPass& rank : ranks) drafted = std::max(drafted, drafting(rank.pass, rank.sampled - rank.pass.verified));
  }
  double most = 0.0, everyone = 0.0;
  Number sampled = 0, decodes = 0;
  bool captured = true, prompts = false;
  for (const RankPass& rank : ranks) {
    const double tokens = pad_tokens(rank.pass.tokens());
    most = std::max(most, tokens);
    everyone += tokens * static_cast<double>(rank.ranks);
    sampled = std::max(sampled, rank.sampled);
    decodes = std::max(decodes, rank.pass.decodes);
    captured = captured && is_captured(rank.pass);
    prompts = prompts || rank.pass.prompt > 0;
  }
  everyone += static_cast<double>(idle) * pad_tokens(1);
  double total = own(most);
  total += shared(everyone / data_ranks);
  total += sampled ? heads(static_cast<double>(sampled)) : 0.0;
  for (Number kind = 0; kind < size_of(kinds); ++kind) {
    const LayerCosts& layer = kinds[at(kind)];
    double slowest = 0.0;
    for (const RankPass& rank : ranks) {
      double spent = rank.pass.prompt ? prompt_seconds(kind, layer, rank.pass) : 0.0;
      if (rank.pass.decodes) spent += layer.cached_seconds(rank.pass);
      slowest = std::max(slowest, spent);
    }
    total += layer.layers * slowest;
  }
  total = with_host(total, decodes, captured, prompts);
  return drafts ? total + drafted : total;
}

double PassTimes::drafting(const Passing& pass, Number requests) {
  double total = draft(pass, requests);
  if (requests && drafts > 1) {
    const double length = pass.decodes ? pass.cached / static_cast<double>(pass.decodes)
                                       : static_cast<double>(pass.prompt) / static_cast<double>(pass.chunks);
    Passing next;
    next.decodes = requests;
    next.cached = static_cast<double>(requests) * length;
    total += static_cast<double>(drafts - 1) * draft(next, requests);
  }
  return total;
}

double PassTimes::draft(const Passing& pass, Number requests) {
  if (small_model) return small_model->seconds(pass, requests);
  const LayerCosts& layer = draft_layer.front();
  double total = draft_rows(pad_tokens(pass.tokens()));
  total += requests ? draft_heads(static_cast<double>(requests)) : 0.0;
  total += pass.prompt ? prompt_seconds(-1, layer, pass) : 0.0;
  return total + (pass.decodes ? layer.cached_seconds(pass) : 0.0);
}

double PassTimes::prompt_seconds(Number kind, const LayerCosts& layer, const Passing& pass) {
  if (!layer.attends && !layer.scan) return 0.0;
  const auto prompt = static_cast<double>(pass.prompt);
  const double pairs = std::max(layer.read_tokens(pass.pairs, prompt), 1.0);
  const double each = prompt / static_cast<double>(pass.chunks), deep = pairs / prompt;
  const auto rounded = [](double value) { return static_cast<Number>(std::nearbyint(value)); };
  const PromptKey key = layer.scan ? PromptKey{kind, 1, rounded(4.0 * std::log2(prompt)), 0}
                                   : PromptKey{kind, pass.chunks, rounded(4.0 * std::log2(each)), rounded(8.0 * std::log2(deep))};
  auto found = prompts_.find(key);
  if (found == prompts_.end()) found = prompts_.emplace(key, (*price_)(kind < 0 ? kind : first_kind + kind, pass)).first;
  const double spent = found->second * (layer.scan ? prompt : pairs);
  if (!layer.indexed) return spent + 0.0;
  const double scores = pass.pairs * 4.0 / layer.stride;
  return spent + (pass.pairs * layer.index_flops / layer.index_rate + layer.move_seconds(2.0 * scores));
}

double PassTimes::pad_tokens(Number tokens) const {
  if (tokens > host.graph_tokens || !host.padded) return static_cast<double>(tokens);
  const auto size = std::lower_bound(graph_sizes.begin(), graph_sizes.end(), static_cast<double>(tokens));
  return size == graph_sizes.end() ? graph_sizes.back() : *size;
}

bool PassTimes::is_captured(const Passing& pass) const {
  if (!host.padded) {
    return !pass.prompt && std::binary_search(graph_sizes.begin(), graph_sizes.end(), static_cast<double>(pass.decodes));
  }
  return pass.tokens() <= host.graph_tokens && (host.captures_prompts || !pass.prompt);
}

double PassTimes::with_host(double seconds, Number decodes, bool captured, bool prompts) const {
  const double called = captured ? host.launched : std::max(host.launched, host.called);
  const double kernels = seconds * host.kernels * (prompts ? host.prompts : 1.0);
  const double spent = std::max(kernels, called) + host.gap + host.request_gap * static_cast<double>(decodes);
  return std::max(spent, host.sent * static_cast<double>(decodes));
}

}  // namespace wt::serve
