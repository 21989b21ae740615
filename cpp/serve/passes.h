// Seconds of forward passes, as windtunnel.serving.step_times and windtunnel.serving.drafting have them, from the same numbers in
// the same order of arithmetic. Only powers may differ, in their last bits: numpy has its own on machines with wide vectors.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "serve/rows.h"

namespace wt::serve {

// A pass of a lane; see windtunnel.serving.lengths.Passing.
struct Passing {
  Number prompt = 0, chunks = 0;
  double pairs = 0.0;
  Number decodes = 0;
  double cached = 0.0;
  Number verified = 0;

  [[nodiscard]] Number tokens() const { return prompt + decodes + verified; }
};

// Points of a line, and its value between them as numpy.interp has it.
struct Curve {
  std::vector<double> x, y;
  [[nodiscard]] double operator()(double where) const;
};

// What mixes the tokens of `layers` layers of one kind; windtunnel.workload.mixer.Mixing and the curves that price it.
struct LayerCosts {
  double layers = 1.0;
  bool scan = false, attends = false, absorbed = false;
  double most = -1.0, stride = 1.0, picked = -1.0, window = 0.0;  // -1: no limit
  double state = 0.0, kept = 0.0;  // kept: seconds in which a request's state is copied after drafts were verified
  double reread = 0.0;             // share of a request's cache that each further query token of it reads anew
  double heads = 0.0, groups = 1.0, elements = 0.0, wide = 0.0, dim = 0.0, width = 0.0;
  double latency = 0.0, memory = 0.0, rate = 0.0, setup = 0.0, key = 0.0, merge = 0.0, blend = 1.0, sms = 1.0;
  double move_latency = 0.0, move_rate = 0.0;  // of kernels that move bytes
  bool indexed = false;
  double index_bytes = 0.0, index_flops = 0.0, index_rate = 1.0;

  // Entries that `decodes` requests read of `cached` tokens.
  [[nodiscard]] double read_tokens(double cached, double decodes) const;
  // Seconds of one layer for the new tokens of each request.
  [[nodiscard]] double cached_seconds(const Passing& pass) const;
  [[nodiscard]] double move_seconds(double bytes) const { return move_latency + bytes / move_rate; }
};

// What a host adds, and which passes are captured graphs.
struct HostCosts {
  double kernels = 1.0, prompts = 1.0, launched = 0.0, called = 0.0, gap = 0.0, request_gap = 0.0, sent = 0.0;
  Number graph_tokens = 0;
  bool captures_prompts = false;
  bool padded = true;  // else only passes of as many decoding requests as `graph_sizes` has are captured
};

// Seconds for a token and a key of a prompt's attention, or for a token of its recurrence, in layers of a kind. Kinds of a small
// model that drafts are numbered behind those of the model; -1: the layer that drafts.
using PromptPrice = std::function<double(Number kind, const Passing& pass)>;

// A pass of a rank, the tokens that it samples, and how many ranks do the same.
struct RankPass {
  Passing pass;
  Number sampled = 0, ranks = 1;
};

class PassTimes {
 public:
  Curve rows, heads, own, shared;  // of tokens; of sampled tokens; of a rank's own rows; of experts
  std::vector<double> graph_sizes;
  std::vector<LayerCosts> kinds;
  HostCosts host;
  double data_ranks = 1.0;
  Number first_kind = 0;
  // What drafts: nothing, a layer, or a small model.
  Number drafts = 0;
  Curve draft_rows, draft_heads;  // of tokens; of drafted tokens
  std::vector<LayerCosts> draft_layer;
  std::shared_ptr<PassTimes> small_model;
  std::mutex busy;  // held while a run uses this

  // Who prices prompts that are new; asked once for lengths that are alike.
  void ask(const PromptPrice* price);
  [[nodiscard]] double seconds(const Passing& pass, Number sampled);
  // A pass of ranks that share experts, `idle` of which run an empty one.
  [[nodiscard]] double meeting_seconds(std::span<const RankPass> ranks, Number idle);

 private:
  struct PromptKey {
    Number kind, chunks, each, deep;
    bool operator==(const PromptKey&) const = default;
  };
  struct PromptHash {
    std::size_t operator()(const PromptKey& key) const;
  };

  [[nodiscard]] double model_seconds(const Passing& pass, Number sampled);
  [[nodiscard]] double drafting(const Passing& pass, Number requests);
  [[nodiscard]] double draft(const Passing& pass, Number requests);
  [[nodiscard]] double prompt_seconds(Number kind, const LayerCosts& layer, const Passing& pass);
  [[nodiscard]] double pad_tokens(Number tokens) const;
  [[nodiscard]] bool is_captured(const Passing& pass) const;
  [[nodiscard]] double with_host(double seconds, Number decodes, bool captured, bool prompts) const;

  const PromptPrice* price_ = nullptr;
  std::unordered_map<PromptKey, double, PromptHash> prompts_;
};

}  // namespace wt::serve
