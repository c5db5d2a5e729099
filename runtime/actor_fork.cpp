// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/actor.hpp>

#include <reprise/runtime/window.hpp>

#include <algorithm>
#include <new>
#include <string>

namespace reprise::detail {

// Streams that are forked from a recording one record in its window until they are joined.

Window::~Window() {
  while (!forked.empty()) leave(*forked.back().stream);
}

void Window::enroll(LogicalStream& stream) {
  forked.reserve(forked.size() + 1);
  const DeviceCaptures::Key key = captures.enter();
  captures.prepared(key, stream.id);
  captures.began(key);
  forked.push_back({&stream, key});
  stream.device.forked_in = this;
}

void Window::leave(LogicalStream& stream) noexcept {
  const auto found = std::find_if(forked.begin(), forked.end(),
                                  [&](const Forked& one) { return one.stream == &stream; });
  captures.leave(found->key);
  forked.erase(found);
  stream.device.forked_in = nullptr;
}

namespace {

FailurePtr unjoined(const Window& window, const LogicalStream& stream, const char* what) {
  return make_failure(Errc::capture_order, "join", window.name,
                      "stream " + std::to_string(stream.id) + ", forked in the window of stream " +
                          std::to_string(window.logical.id) + ", was " + what);
}

}  // namespace

void Actor::enroll(Operation& operation, LogicalStream& forked) {
  if (Window* const window = window_of(operation); window != nullptr && window->is_recording()) {
    window->enroll(forked);
  }
  done(operation);
}

void Actor::join(Operation& operation, LogicalStream& other) {
  Window* const window = window_of(operation);
  const bool recording = window != nullptr && window->is_recording();
  if (&other == operation.logical.get()) return done(operation);
  if (recording && other.device.forked_in == window) {
    window->leave(other);
    return done(operation);
  }
  const auto refuse_it = [&](const char* why) {
    refuse(operation, Errc::capture_refused, "joins stream " + std::to_string(other.id) + why);
  };
  if (recording) return refuse_it(", which was not forked in this window");
  if (other.device.forked_in != nullptr ||
      (other.device.window != nullptr && other.device.window->is_recording())) {
    return refuse_it(", which is recording");
  }
  wait_for(operation, other.device.last);
}

/// A window that some of its streams have not come back to does not seal.
void Actor::require_joined(Window& window) {
  for (const Window::Forked& one : window.forked) {
    window.capture.fail(unjoined(window, *one.stream, "not joined before its end"));
  }
}

void Actor::drop_forked(LogicalStream& forked) noexcept {
  Window& window = *forked.device.forked_in;
  window.capture.fail(unjoined(window, forked, "dropped before it was joined"));
  window.leave(forked);
}

/// True: `operation` came from a forked stream, which can neither open nor end windows, and has
/// been answered.
bool Actor::is_forked(Operation& operation) {
  if (operation.logical->device.forked_in == nullptr) return false;
  decline(operation,
          {Errc::capture_order, 0, "the stream was forked in the window of another one"});
  return true;
}

}  // namespace reprise::detail
