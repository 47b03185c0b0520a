// SPDX-License-Identifier: Apache-2.0
// moving_inputs.h: changes the inputs and the output of a repeatedly timed call between its runs,
// so that each run has to do its work.
//
// An algorithm that caches its last result (by mistake, or to appear fast) may recognise a call by
// the address, sizes or contents of an input, or find its result in the output. So pairs of input
// values are swapped, which keeps their distribution, and some output elements become NaN. Between
// two runs, one pair and one output element change, which takes some nanoseconds. Between samples,
// a few pairs and elements change. Between rounds, up to one input in 32 changes, so nearly every
// output changes. The generator of the positions has a seed from the operating system, which an
// algorithm cannot predict.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layers/dispatch/operands.h"

namespace convscope {

class CONVSCOPE_API MovingInputs {
 public:
  // Takes operands on the CPU; inputs on another device do not change. `weights` says whether the
  // weights change, too; it is false if they were prepared before the timing.
  MovingInputs(const Operands& operands, const OperandSpecs& specs, bool weights);

  void turn();
  void sample();
  void run();
  // Returns "" if all elements that were set to NaN since the last call have been overwritten, else
  // a sentence.
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
  std::size_t next_ = 0;  // index in poisoned_
  std::size_t runs_ = 0;
};

}  // namespace convscope
