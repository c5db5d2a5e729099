// SPDX-License-Identifier: Apache-2.0

#if defined(__SANITIZE_THREAD__)
// moodycamel's queue orders its accesses by standalone fences, which the thread sanitizer does not
// model, so it reports races that are none. Only a raw pointer ever goes through the queue, so no
// frame of our own runs inside the frames that this hides.
extern "C" const char* __tsan_default_suppressions() {
  return "race:moodycamel::ConcurrentQueue\n";
}

// A test that deadlocks or races must fail, not only say so.
extern "C" const char* __tsan_default_options() {
  return "halt_on_error=1:second_deadlock_stack=1:history_size=4:report_thread_leaks=0";
}
#endif

#if defined(__SANITIZE_ADDRESS__)
extern "C" const char* __asan_default_options() {
  return "detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1:"
         "check_initialization_order=1";
}

extern "C" const char* __ubsan_default_options() {
  return "print_stacktrace=1";
}
#endif
