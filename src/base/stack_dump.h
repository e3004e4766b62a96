// What every thread of a process is doing, written to standard error when somebody asks.
#pragma once

namespace regather {

// From now on SIGUSR1 makes this process, and what it forks, write the stack of each of its threads to standard error:
// "stack of NAME:", where a rank's thread is named "rank 1", and a line a frame, innermost first. Takes SIGUSR2 too,
// by which the threads are asked in turn.
void install_stack_dump();

// The same at once. Async-signal-safe; a thread that does not answer within 200 ms is left out. Nothing happens unless
// installed, nor while another dump is being written.
void dump_stacks();

// Writes the calling thread's stack, with "HEAD of NAME:" before it, without the frames of a signal handler whose third
// argument is `context`. Async-signal-safe once installed. Processes that share a black box take turns.
void write_own_stack(const char* head, const void* context = nullptr);

}  // namespace regather
