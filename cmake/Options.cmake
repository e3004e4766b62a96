# One interface target carries what every target of the project is compiled with.
add_library(regather_options INTERFACE)
add_library(regather::options ALIAS regather_options)
target_compile_features(regather_options INTERFACE cxx_std_20)
target_compile_options(regather_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
                                                  -Woverloaded-virtual -Wimplicit-fallthrough -Werror)
target_include_directories(regather_options INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})

if(REGATHER_SANITIZE)
  target_compile_options(regather_options INTERFACE -fsanitize=${REGATHER_SANITIZE} -fno-omit-frame-pointer
                                                    -fno-sanitize-recover=all)
  # Instrumented, gcc 12 sees uninitialised members inside its own std::regex.
  target_compile_options(regather_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(regather_options INTERFACE -fsanitize=${REGATHER_SANITIZE})
endif()

# The programs side by side: regather starts regather-worker from its own folder.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
