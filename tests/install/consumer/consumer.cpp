// SPDX-License-Identifier: Apache-2.0
// consumer.cpp: a program that trains one weight w with the installed headers and library, by
// gradient steps on (w - 3)^2, which lead w to 3.
#include <cmath>
#include <cstdio>

#include "framework/ops/elementwise.h"
#include "optim/optimizer.h"

int main() {
  using namespace convscope;
  Variable w(Tensor::full(Shape{1}, 0.0), true);
  ParameterGroup group;
  group.parameters = {{"w", w}};
  const auto optimizer = make_optimizer("sgd", {group}, {{"momentum", 0.5}});
  for (int step = 0; step < 60; ++step) {
    w.zero_grad();
    const Variable error = sub(w, Variable(Tensor::full(Shape{1}, 3.0)));
    const Variable loss = mul(error, error);
    loss.backward();
    optimizer->step(0.1);
  }
  std::printf("w = %.4f, %s\n", w.value().item(), w.value().str().c_str());
  return std::fabs(w.value().item() - 3.0) < 1e-3 ? 0 : 1;
}
