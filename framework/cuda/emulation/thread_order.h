// SPDX-License-Identifier: Apache-2.0
// thread_order.h: the order in which threads of a block, blocks of a cluster and blocks of a grid
// begin. Reversing the order often changes the effect of a missing barrier, and of a read of data
// that another block of the launch writes. CONVSCOPE_EMULATION_ORDER sets the initial order.
#pragma once

namespace emulation {

enum class ThreadOrder { first_first, last_first };
// Sets the order of later launches; returns the previous order.
ThreadOrder set_thread_order(ThreadOrder order);

}  // namespace emulation
