// SPDX-License-Identifier: Apache-2.0
#include <memory_picture/scene.hpp>

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <stdexcept>

namespace memory_picture {

namespace {

using Floats = reprise::Array<float>;

constexpr std::size_t kib = 1024 / sizeof(float);

const reprise::Kernel blend{"blend", [](reprise::Block block, reprise::In<float> weights,
                                        reprise::In<float> in, reprise::Out<float> out) {
                              for (std::size_t i : block.range(out.size())) {
                                out[i] = weights[i % weights.size()] * in[i % in.size()];
                              }
                            }};

const reprise::Kernel broken{"broken", [](reprise::Block, reprise::In<float>, reprise::Out<float>) {
                               throw std::runtime_error("the matrix is <singular>");
                             }};

}  // namespace

struct Scene::Latch {
  void wait() {
    std::unique_lock lock(mutex);
    started = true;
    changed.notify_all();
    changed.wait(lock, [this] { return open; });
  }
  void wait_for_start() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return started; });
  }
  void release() {
    const std::lock_guard lock(mutex);
    open = true;
    changed.notify_all();
  }

  std::mutex mutex;  // guards the rest
  std::condition_variable changed;
  bool started = false;
  bool open = false;
};

Scene::Scene(const reprise::Device& device) : latch_(std::make_shared<Latch>()) {
  try {
    build(device.client(), device.client());
  } catch (...) {
    latch_->release();
    throw;
  }
}

Scene::~Scene() {
  latch_->release();
}

void Scene::build(const reprise::Client& client, const reprise::Client& slow) {
  std::vector<std::optional<Floats>> buffers;
  for (const std::size_t size : {300, 180, 420, 96, 640, 220, 128, 512, 200, 330}) {
    buffers.emplace_back(client.zeros<float>(size * kib));
  }
  // Larger than a page of the device.
  const Floats table = client.zeros<float>(5000 * kib);
  const Floats fresh = client.empty<float>(260 * kib);

  // Two graphs: both read the weights, each has an output and a temporary of its own.
  const Floats& weights = *buffers[0];
  for (const std::size_t out : {std::size_t{2}, std::size_t{4}}) {
    graphs_.push_back(client.capture(
        [&](reprise::Client& c) {
          const Floats middle = c.empty<float>(150 * kib);
          c.launch(blend, 1, weights, *buffers[1], middle);
          c.launch(blend, 1, weights, middle, *buffers[out]);
        },
        {.name = out == 2 ? "prefill" : "decode"}));
    graphs_.back().run();
  }

  // A launch that fails leaves what it should have written with its failure, and what reads that.
  client.launch(broken, 1, weights, *buffers[5]);
  client.launch(blend, 1, weights, *buffers[5], *buffers[8]);
  client.synchronize();

  // One buffer is dropped: a hole. Two more are, but stay in use by what runs.
  buffers[3].reset();
  slow.host_call({.reads = {*buffers[7]}, .may_write = {*buffers[6]}, .must_write = {}},
                 [latch = latch_] { latch->wait(); });
  latch_->wait_for_start();
  buffers[7].reset();
  buffers[6].reset();

  for (const std::optional<Floats>& buffer : buffers) {
    if (buffer) kept_.push_back(*buffer);
  }
  kept_.push_back(table);
  kept_.push_back(fresh);
}

}  // namespace memory_picture
