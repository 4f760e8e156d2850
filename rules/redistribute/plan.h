// The cheapest sequence of transitions for a request, made once per request.
#pragma once

#include "rules/redistribute/request.h"

#include <memory>

namespace spmd::rules::redistribute {

// Plans, made once per request. They stay valid as long as the planner; types are added to the
// program.
class Planner {
public:
  // `effort`: shared by all plans that are made; null: each has all that a search takes.
  explicit Planner(ir::Program &program, Topology topology = {}, SearchBudget *effort = nullptr);
  ~Planner();
  // The request must not be refused, and be one that can be planned.
  const Plan &plan(const Request &request);
  const Topology &topology() const { return topology_; }
  SearchBudget *effort() const { return effort_; }

private:
  struct State;
  ir::Program &program_;
  Topology topology_;
  SearchBudget *effort_;
  std::unique_ptr<State> state_;
};

} // namespace spmd::rules::redistribute
