# Faster tools where the machine has them; nothing here changes what is built.
find_program(REGATHER_CCACHE ccache)
if(REGATHER_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The sloppiness lets a cached object be used together with a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime"
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${REGATHER_CCACHE})
endif()

find_program(REGATHER_LLD ld.lld)
if(REGATHER_LLD)
  add_link_options(-fuse-ld=lld)
endif()

set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
