// SPDX-License-Identifier: Apache-2.0
// thread_order.h: which thread of a block begins, and which block of a cluster and a grid. What a
// missing barrier leaves to chance often comes out differently in the other order; so does what a
// block reads that another block of the same launch writes. A process begins with
// CONVSCOPE_EMULATION_ORDER.
#pragma once

namespace emulation {

enum class ThreadOrder { first_first, last_first };
// Of the launches that follow; returns the order of those before.
ThreadOrder set_thread_order(ThreadOrder order);

}  // namespace emulation
