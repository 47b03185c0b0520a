// SPDX-License-Identifier: Apache-2.0
// moving_inputs.h: the inputs and the output of a call that is timed many times change between its
// runs, so that each run has to do its work.
//
// An algorithm that keeps its last result (by mistake, or to look fast) may find it again by the
// address of an input, by its sizes, by the contents of an input, or by what the output still
// holds. So numbers of the inputs change places, which keeps their distribution, and some numbers
// of the output become NaN. A run changes one pair and one output, which takes some nanoseconds; a
// sample a few of them; a turn up to one input in 32, so that nearly every sum becomes another one.
// The places come from the operating system's random numbers: nobody can know them in advance.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layers/dispatch/operands.h"

namespace convscope {

class CONVSCOPE_API MovingInputs {
 public:
  // Of operands on the CPU; on another device nothing moves. `weights`: the weights move, too. They
  // must not where they were prepared before the timing.
  MovingInputs(const Operands& operands, const OperandSpecs& specs, bool weights);

  void turn();
  void sample();
  void run();
  // "" when everything was written that was poisoned since the last call of this; else a sentence.
  std::string not_written();

 private:
  struct Array {
    unsigned char* data;
    std::int64_t count;
    std::size_t size;  // bytes of an element
  };
  std::int64_t below(std::int64_t count);
  unsigned char* place_in(const Array& array);
  void swap_in(const Array& array, std::int64_t how_many);
  void swap_some(std::int64_t how_many);
  void poison(std::int64_t how_many);

  std::uint64_t random_;
  std::vector<Array> inputs_, outputs_;
  std::vector<unsigned char*> poisoned_;
  std::size_t next_ = 0;  // in poisoned_
  std::size_t runs_ = 0;
};

}  // namespace convscope
