// The protocol alone, against a process that answers as tables.py does; what pyarrow makes of real
// files is tested by tests/end_to_end/formats_test.py and columns_test.py.
#include "entrain/core/dataset/table.h"

#include <fstream>
#include <iterator>
#include <thread>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/python_process.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/shards.h"

namespace entrain {
namespace {

using oracle::error_of;
using oracle::TemporaryFolder;

// A table of 10 rows in answers of up to 4: row n has question "n", its file's name as the answer
// and image bytes of n + 1 times the digit n; row 5 is damaged, so are rows 8 and 9 together. Every
// request is logged.
constexpr const char* kTables = R"(
import json, sys
source, sink = sys.stdin.buffer, sys.stdout.buffer
log = open(sys.argv[0] + ".log", "a")
for line in source:
    request = json.loads(line)
    log.write(line.decode())
    log.flush()
    parts = []
    if request["path"].endswith("gone.parquet"):
        sys.exit(3)
    if "open" in request:
        lines = [{"rows": 10, "largest": 77, "unread": ["thumbnail"]}]
    elif request["from"] >= 8:
        lines = [{"error": "a damaged group", "rows": request["to"] - request["from"]}]
    else:
        rows = range(request["from"], min(request["to"], request["from"] + 4, 8))
        lines, size = [], 0
        for row in rows:
            content = str(row).encode() * (row + 1)
            media = {"images": [[size, len(content)]]}
            if request["path"].endswith(".arrow"):
                media = {"images": [[row, 2, True], "a.png"]}
            text = {"question": row, "answer": request["path"].rsplit("/", 1)[1], "label": "l"}
            entry = {"json": json.dumps(text), "media": media}
            lines.append({"error": "a damaged row"} if row == 5 else entry)
            parts.append(content)
            size += len(content)
        lines.insert(0, {"rows": len(rows), "bytes": size})
    for entry in lines:
        sink.write(json.dumps(entry).encode() + b"\n")
    for part in parts:
        sink.write(part)
    sink.flush()
)";

class Tables : public testing::Test {
 protected:
  Tables() {
    std::filesystem::create_directories(folder_.path() / "entrain");
    folder_.write("entrain/__init__.py", "");
    folder_.write("entrain/tables.py", kTables);
    set_python_program({"python3", folder_.path()});
  }
  ~Tables() override { set_python_program({}); }

  // On a thread of its own, and so with a process of its own.
  template <class Work>
  static void apart(const Work& work) {
    std::thread(work).join();
  }

  [[nodiscard]] std::filesystem::path file(const char* name) const { return folder_.path() / name; }

  TemporaryFolder folder_;
};

std::string text_of(FoundSample sample) {
  return sample.text.content() + " " + sample.images.at(0).content();
}

TEST_F(Tables, GiveRowsInOrderAcrossAnswers) {
  apart([&] {
    TableReader reader(file("a.parquet"), folder_.path());
    EXPECT_EQ(reader.num_samples(), 10);
    EXPECT_EQ(reader.bytes_of_a_row(), 77);
    EXPECT_EQ(reader.notes().size(), 1U);
    EXPECT_NE(reader.notes().at(0).find("'thumbnail'"), std::string::npos);
    for (int row = 0; row < 10; ++row) {
      EXPECT_EQ(reader.upcoming(), "a/" + std::to_string(row));
      if (row == 5 || row >= 8) {
        const std::string message = error_of<InvalidInput>([&] { reader.next(); });
        EXPECT_NE(message.find("a.parquet', row " + std::to_string(row) +
                               (row == 5 ? ": a damaged row" : ": a damaged group")),
                  std::string::npos)
            << message;
        continue;
      }
      const FoundSample sample = reader.next();
      EXPECT_EQ(sample.id, "a/" + std::to_string(row));
      EXPECT_EQ(sample.offset, row);
      EXPECT_EQ(sample.size, 1);
      EXPECT_EQ(sample.images.at(0).content(),
                std::string(static_cast<std::size_t>(row) + 1, static_cast<char>('0' + row)));
    }
  });
}

TEST_F(Tables, OfOneThreadShareAProcessInAnyOrder) {
  apart([&] {
    TableReader one(file("one.parquet"), folder_.path());
    TableReader two(file("two.parquet"), folder_.path());
    for (int row = 0; row < 5; ++row) {
      const std::string number = std::to_string(row);
      const std::string first = text_of(one.next());
      EXPECT_NE(first.find("one.parquet"), std::string::npos) << first;
      EXPECT_NE(first.find("\"question\": " + number), std::string::npos) << first;
      EXPECT_NE(text_of(two.next()).find("two.parquet"), std::string::npos);
      const FoundSample alone = read_row({file("three.parquet").string(), 6 + row % 2, 1});
      EXPECT_EQ(alone.images.empty(), false);
      EXPECT_EQ(alone.offset, 6 + row % 2);
      if (row == 0) {
        // A reader that is left while its rows are on their way.
        TableReader left(file("left.parquet"), folder_.path());
        left.next();
        left.next();
        left.next();
        left.next();
      }
      if (row == 4) {
        break;
      }
    }
  });
}

TEST_F(Tables, MapBytesThatAreInTheFile) {
  folder_.write("b.arrow", "0123456789");
  folder_.write("a.png", "content");
  apart([&] {
    TableReader reader(file("b.arrow"), folder_.path());
    reader.next();
    const FoundSample sample = reader.next();
    EXPECT_EQ(sample.images.at(0).content(), "12");
    EXPECT_EQ(sample.images.at(0).bytes(1, 1), "2");
    EXPECT_EQ(sample.images.at(1).content(), "content");
  });
}

TEST_F(Tables, SendColumnsAndRenameTexts) {
  apart([&] {
    const ColumnMap columns("answer=label;image=front;image=back");
    TableReader reader(file("c.parquet"), folder_.path(), columns);
    EXPECT_EQ(reader.next().text.content(), R"({"question":0,"answer":"l"})");
    const FoundSample row = read_row({file("c.parquet").string(), 3, 1, "", columns.text()});
    EXPECT_EQ(row.text.content(), R"({"question":3,"answer":"l"})");
    EXPECT_NE(error_of<InvalidInput>([&] {
                TableReader(file("c.parquet"), folder_.path(), ColumnMap("image=.jpg"));
              }).find("'image=.jpg' names a member of shards"),
              std::string::npos);
  });
  const std::string log = [&] {
    std::ifstream in(folder_.path() / "entrain" / "tables.py.log");
    return std::string(std::istreambuf_iterator<char>(in), {});
  }();
  EXPECT_NE(log.find(R"("texts":["label"],"media":{"images":["front","back"]})"), std::string::npos)
      << log;
}

TEST_F(Tables, ReadOnAfterTheProcessEnded) {
  apart([&] {
    TableReader reader(file("d.parquet"), folder_.path());
    EXPECT_NE(error_of<SystemFailure>([&] {
                TableReader(file("gone.parquet"), folder_.path());
              }).find("ended with exit code 3"),
              std::string::npos);
    EXPECT_NE(text_of(reader.next()).find("d.parquet"), std::string::npos);
  });
}

}  // namespace
}  // namespace entrain
