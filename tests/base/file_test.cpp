// Lines at the end of a file, on disks that fill up and after writers that were killed.
#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "../full_disk.h"

namespace regather {
namespace {

class FileTest : public testing::Test {
 protected:
  FileTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "regather-file-XXXXXX").string();
    file_ = ::mkstemp(pattern.data());
    ::fcntl(file_, F_SETFL, O_APPEND);
    path_ = pattern;
  }
  ~FileTest() override {
    ::close(file_);
    std::filesystem::remove(path_);
  }
  std::string text() const { return read_file(path_, 1 << 20); }
  void put(const std::string& text) const { EXPECT_TRUE(write_all(file_, text)); }

  std::string path_;
  int file_ = -1;
};

TEST_F(FileTest, ALineIsWrittenWholeOrNotAtAll) {
  ASSERT_TRUE(append_line(file_, "one"));
  {
    const FullDisk disk(10);
    EXPECT_FALSE(append_line(file_, "two and three"));
    EXPECT_EQ(errno, EFBIG);
    EXPECT_EQ(text(), "one\n") << "the six bytes for which there was room are gone";
    EXPECT_TRUE(append_line(file_, "short"));
  }
  EXPECT_TRUE(append_line(file_, "two and three"));
  EXPECT_EQ(text(), "one\nshort\ntwo and three\n");
}

TEST_F(FileTest, ADeviceThatIsFullSaysSo) {
  const int full = ::open("/dev/full", O_WRONLY | O_APPEND | O_CLOEXEC);
  EXPECT_FALSE(append_line(full, "line"));
  EXPECT_EQ(errno, ENOSPC);
  ::close(full);
}

TEST_F(FileTest, OnlyATornLastLineIsCutOff) {
  EXPECT_TRUE(cut_torn_line(file_));
  EXPECT_EQ(text(), "");
  put("one\ntwo\n");
  EXPECT_TRUE(cut_torn_line(file_));
  EXPECT_EQ(text(), "one\ntwo\n");
  for (const size_t length : {1U, 4095U, 4096U, 4097U, 20000U}) {
    put(std::string(length, 'x'));
    EXPECT_TRUE(cut_torn_line(file_));
    EXPECT_EQ(text(), "one\ntwo\n") << length;
  }
}

TEST_F(FileTest, AFileOfATornLineAloneBecomesEmpty) {
  put(std::string(5000, 'x'));
  EXPECT_TRUE(cut_torn_line(file_));
  EXPECT_EQ(text(), "");
}

}  // namespace
}  // namespace regather
