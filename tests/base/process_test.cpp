#include "base/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

namespace regather {
namespace {

TEST(Process, IsReadWhateverItsName) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_NAME, "a) R (b");
    ::setpgid(0, 0);
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  const auto process = read_process(child);
  ASSERT_TRUE(process);
  EXPECT_EQ(process->name, "a) R (b");
  EXPECT_TRUE(process->stopped());
  EXPECT_EQ(process->group, child);
  const auto group = processes_of_group(child);
  ASSERT_EQ(group.size(), 1U);
  EXPECT_EQ(group[0].pid, child);
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_FALSE(read_process(child));
  EXPECT_FALSE(read_process(::getpid())->stopped());
}

}  // namespace
}  // namespace regather
