# Run at build time: writes OUTPUT with the checkout's commit, or with an empty one where there is no git.
execute_process(COMMAND git -C ${SOURCE} rev-parse HEAD OUTPUT_VARIABLE commit ERROR_QUIET
                OUTPUT_STRIP_TRAILING_WHITESPACE)
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
namespace regather {
const char* build_commit();
const char* build_commit() { return "@commit@"; }
}  // namespace regather
]])
file(TOUCH ${OUTPUT})
