// Threads: shots are dealt to teams in a fixed order; where there are fewer shots than threads, a team shares the planes
// of one. Neither changes a sum, so results do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

// Waves that have hardly arrived are denormal numbers, which are slow: flush them to zero, on this thread only.
class FlushDenormals {
#if defined(__SSE__)
 public:
  FlushDenormals() : before(_mm_getcsr()) { _mm_setcsr(before | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(before); }

 private:
  unsigned before;
#endif
};

// Members of a team wait for each other.
class Team {
 public:
  explicit Team(int64_t size) : size(size) {}
  const int64_t size;
  void meet() {
    if (size == 1) return;
    const int64_t turn = turns.load();
    if (arrived.fetch_add(1) + 1 == size) {
      arrived.store(0);
      turns.store(turn + 1);
      return;
    }
    // a step takes microseconds; on a busy machine the others may have no core to run on
    for (int64_t i = 0; turns.load() == turn; ++i)
      if (i > SPINS) std::this_thread::yield();
  }

 private:
  static constexpr int64_t SPINS = 2000;
  std::atomic<int64_t> arrived{0}, turns{0};
};

// Planes of a member: whole blocks, of which the first member has two or more, for a mirror reads as many.
struct Share {
  static constexpr int64_t BLOCK = 4;
  int64_t begin, end;
  Share(int64_t planes, int64_t member, int64_t size) {
    const int64_t blocks = (planes + BLOCK - 1) / BLOCK;
    begin = blocks * member / size * BLOCK, end = std::min(planes, blocks * (member + 1) / size * BLOCK);
  }
  static int64_t most(int64_t planes) { return std::max<int64_t>(1, (planes + BLOCK - 1) / BLOCK / 2); }
};

// Calls work(crew, crews, team, member) on every thread and returns what failed, or nothing. Memory is to be had by
// begin(members) before any thread starts: what fails there leaves nobody waiting.
template <typename Crew, typename Begin, typename Work>
std::string deal(int64_t shots, int64_t threads, int64_t most, const Begin& begin, const Work& work) {
  threads = std::max<int64_t>(1, threads);
  const int64_t crews = std::max<int64_t>(1, std::min(threads, shots));
  const int64_t size = std::min(most, threads / crews);
  try {
    std::vector<std::unique_ptr<Crew>> made;
    std::vector<std::unique_ptr<Team>> teams;
    for (int64_t i = 0; i < crews; ++i) made.push_back(begin(size)), teams.emplace_back(new Team(size));
    auto run = [&](int64_t thread) {
      FlushDenormals flush;
      const int64_t crew = thread / size;
      for (int64_t shot = crew; shot < shots; shot += crews) work(*made[crew], shot, *teams[crew], thread % size);
    };
    std::vector<std::thread> helpers;
    for (int64_t i = 1; i < crews * size; ++i) helpers.emplace_back(run, i);
    run(0);
    for (auto& helper : helpers) helper.join();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}
