// SPDX-License-Identifier: Apache-2.0
// step_partners.cpp: finds the operations of one step that work together.
#include "layers/plan/step_partners.h"

#include "layers/plan/pipeline.h"

namespace convscope {

StepPartner::~StepPartner() = default;

namespace {

// The last operation that leaves sums gives them to the operation that adds sums.
void find_partners(Graph& graph) {
  StepPartner *from = nullptr, *to = nullptr;
  for (const auto& op : graph.ops()) {
    auto* const partner = dynamic_cast<StepPartner*>(op.get());
    if (partner == nullptr) continue;
    partner->settle(graph);
    if (partner->leaves_sums(graph)) from = partner;
    if (partner->adds_sums(graph)) to = partner;
  }
  if (from == nullptr || to == nullptr) return;
  from->exchange = to->exchange = std::make_shared<SumsExchange>();
}

const bool registered = register_pass("step_partners", find_partners);

}  // namespace
}  // namespace convscope
