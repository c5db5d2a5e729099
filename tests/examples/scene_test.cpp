// SPDX-License-Identifier: Apache-2.0
#include <memory_picture/scene.hpp>

#include <catch2/catch.hpp>

#include <string>

using namespace reprise;

TEST_CASE("the scene of a picture has everything that there is to see, and ends", "[examples]") {
  Runtime runtime;
  DeviceOptions options;
  options.workers = 1;
  Device device = runtime.open("cpu:0", options);
  std::string pictures[2];
  for (std::string& picture : pictures) {
    const memory_picture::Scene scene(device);
    const MemoryReport report = device.memory_report();
    CHECK(report.graphs.size() == 2);
    CHECK(report.guarded_by_graphs() == report.pool.guarded);
    CHECK(report.graphs[0].shared_bytes == (300 + 180) * 1024);
    picture = device.memory_picture();
    for (const char* kind : {"edge live", "edge idle", "pointer-events", "class=\"ran\" x=\"",
                             "class=\"held\" x=\"", "class=\"unwritten\" x=\"", "singular"}) {
      CAPTURE(kind);
      CHECK(picture.find(kind) != picture.npos);
    }
  }
  device.synchronize();
  (void)device.trim();
  CHECK(device.memory_report().pool.reserved == 0);
}
