// SPDX-License-Identifier: Apache-2.0
// step_partners.h: operations of one step that work together without being neighbours. A chain of
// few-channel convolutions leaves partial gradients, and the last kernel of the backward pass adds
// them, so that the addition needs no launch.
#pragma once

#include <memory>

#include "framework/graph/emitter.h"
#include "layers/plan/piece_sums.h"

namespace convscope {

// Partial gradients that one operation leaves and another one adds. The pieces are in a slot, which
// the adding call must name. All targets are gradients of parameters.
struct SumsExchange {
  Slot pieces = kNoSlot;  // kNoSlot: none
  PieceSums sums;
};

class CONVSCOPE_API StepPartner {
 public:
  virtual ~StepPartner();
  virtual bool leaves_sums(const Graph&) const { return false; }
  virtual bool adds_sums(const Graph&) const { return false; }  // after all other backward calls
  virtual void settle(Graph&) {}                                // called when the graph is complete

  std::shared_ptr<SumsExchange> exchange;  // null: no partner
};

}  // namespace convscope
