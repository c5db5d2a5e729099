// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/runtime/channel.hpp>

#include <utility>
#include <vector>

/// Commands and nodes that the tests of the channel send to see what becomes of them.
namespace reprise::test {

struct Wakes final : WakeTarget {
  void wake() noexcept override { ++count; }
  int count = 0;
};

/// What commands write down.
struct Log {
  std::vector<int> served;
  int alive = 0;
};

struct Note {
  Note(Log& l, int n) noexcept : log(&l), number(n) { ++l.alive; }
  Note(Note&& from) noexcept : log(from.log), number(std::exchange(from.number, -1)) {
    ++log->alive;
  }
  Note(const Note&) = delete;
  Note& operator=(const Note&) = delete;
  Note& operator=(Note&&) = delete;
  ~Note() { --log->alive; }
  void operator()(void*) noexcept { log->served.push_back(number); }

  Log* log;
  int number;
};

struct Node : ControlNode {
  Node() noexcept
      : ControlNode([](ControlNode& node, void* context) noexcept {
          auto& self = static_cast<Node&>(node);
          ++(context != nullptr ? self.served : self.closed);
        }) {}
  int served = 0;
  int closed = 0;
};

template <class Traits>
bool serve_one(BasicChannel<Traits>& channel) {
  return channel.consume([](const ChannelItem& item) noexcept { item.run(nullptr); });
}

template <class Traits>
void serve_all(BasicChannel<Traits>& channel) {
  int context = 0;
  channel.drain_control([&](ControlNode& node) { node.run(node, &context); });
  while (serve_one(channel)) {
  }
}

}  // namespace reprise::test
