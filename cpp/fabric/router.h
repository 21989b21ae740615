// The links of a flow. Between servers along shortest paths, with the choice among equal ones by a hash of the flow that is
// salted per switch (ECMP); inside a server along shortest paths among its own nodes; NICs as NCCL picks them.
//
// path() is for per-flow routing, and the same for every engine, so that flow and packet runs use the same links.
// next_hops() lists the choices of per-packet routing (spraying, adaptive, flowlets).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fabric/graph.h"

namespace wt::fabric {

enum class Policy : std::uint8_t {
  kEcmp,            // hash of (flow, salt of the switch)
  kEcmpPolarized,   // the same hash with one salt in all switches, as without per-switch seeds
  kDimensionOrder,  // the lowest axis first (torus, mesh), a hash among equal ones
  kFirst,           // always the first of the equal links: the worst static routing
};

enum class NicChoice : std::uint8_t {
  kNearest,  // the nearest NIC of the sender, the nearest of the receiver
  kRail,     // the sender's nearest NIC; the receiver's NIC on the same rail, and from there inside the server
  kPxn,      // the receiver's rail: inside the server to the local GPU of that rail, then out through its NIC
};

struct RouteOptions {
  Policy policy = Policy::kEcmp;
  NicChoice nic = NicChoice::kNearest;
  std::uint64_t seed = 1;
};

class Router {
 public:
  Router(const Graph& graph, const RouteOptions& options);
  ~Router();
  Router(const Router&) = delete;
  Router& operator=(const Router&) = delete;

  // Appends the links from endpoint src to endpoint dst for a flow with this hash key; throws wt::Error if there is no way,
  // naming both. src == dst appends nothing.
  void path(std::int32_t src, std::int32_t dst, std::uint64_t key, std::vector<std::int32_t>& links);

  // Links that leave fabric node `node` on a shortest path to fabric node (or NIC, or endpoint on the fabric) `target`; empty if
  // unreachable. Stays valid until the router goes. Computed on first use: call it from one thread only.
  std::span<const std::int32_t> next_hops(std::int32_t node, std::int32_t target);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace wt::fabric
