// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/runtime/client.hpp>
#include <reprise/runtime/runtime.hpp>

#include <memory>
#include <vector>

namespace memory_picture {

/// A device in the middle of some work: two graphs that share their weights, buffers that nobody
/// names any more but a function that still runs, a hole, memory that nothing wrote, and what a
/// failed launch left behind it.
///
/// Lifetime  The function runs until the scene ends.
class Scene {
public:
  explicit Scene(const reprise::Device& device);
  ~Scene();
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

private:
  struct Latch;

  void build(const reprise::Client& client, const reprise::Client& slow);

  std::shared_ptr<Latch> latch_;
  std::vector<reprise::Buffer> kept_;
  std::vector<reprise::Graph> graphs_;
};

}  // namespace memory_picture
