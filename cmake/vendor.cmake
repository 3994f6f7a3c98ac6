# llama.cpp as a subdirectory: which of its options we preset, and how its libraries get into the package.

set(LLAMA_DIR "${CMAKE_CURRENT_SOURCE_DIR}/vendor/llama.cpp")
if (NOT EXISTS "${LLAMA_DIR}/CMakeLists.txt")
    message(FATAL_ERROR "vendor/llama.cpp is empty; run: python vendor/provision.py")
endif()

# The commit: git knows it in a checkout; a source distribution has no git and carries it in vendor/PIN.
set(LLAMA_COMMIT "")
if (EXISTS "${LLAMA_DIR}/.git")
    find_package(Git QUIET)
    if (Git_FOUND)
        execute_process(
            COMMAND "${GIT_EXECUTABLE}" rev-parse HEAD
            WORKING_DIRECTORY "${LLAMA_DIR}"
            OUTPUT_VARIABLE LLAMA_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    endif()
endif()
if (NOT LLAMA_COMMIT)
    file(STRINGS "${CMAKE_CURRENT_SOURCE_DIR}/vendor/PIN" LLAMA_COMMIT LIMIT_COUNT 1)
endif()
string(SUBSTRING "${LLAMA_COMMIT}" 0 9 LLAMA_BUILD_COMMIT)
set(LLAMA_BUILD_NUMBER 0)

set(LLAMA_BUILD_COMMON ON CACHE BOOL "chat templates and their parsers live in llama-common")
set(LLAMA_BUILD_MTMD ON CACHE BOOL "images and audio")
set(LLAMA_OPENSSL OFF CACHE BOOL "causerie downloads nothing from C++")
set(LLAMA_BUILD_TOOLS ${CAUSERIE_BUILD_TOOLS})
set(LLAMA_BUILD_SERVER OFF CACHE BOOL "")
set(LLAMA_BUILD_TESTS ${CAUSERIE_BUILD_TOOLS})
set(LLAMA_BUILD_EXAMPLES OFF CACHE BOOL "")
set(LLAMA_BUILD_APP OFF CACHE BOOL "")
set(BUILD_SHARED_LIBS ON CACHE BOOL "")
# OpenMP keeps a team of threads for each thread that ever computed, and sleeps in its barriers once there are more of
# them than cores: a second Python thread costs a fifth of the speed. ggml's own threads belong to a context.
set(GGML_OPENMP OFF CACHE BOOL "ggml brings its own threads")
set(LLAMA_ALL_WARNINGS OFF CACHE BOOL "warnings about llama.cpp's code are not ours to read")

# A GGML_ASSERT that fires inside a guarded call leaves through ggml's C frames as an exception (native/src/guard.h).
if (NOT MSVC)
    add_compile_options("$<$<COMPILE_LANGUAGE:C>:-fexceptions>")
endif()

add_subdirectory(vendor/llama.cpp EXCLUDE_FROM_ALL)

# ggml's files for AMX print errors, and GCC's intrinsics for tiles do not say what they read (native/amx_files.h).
if (NOT MSVC)
    foreach (file IN ITEMS amx mmq)
        set_property(
            SOURCE "${LLAMA_DIR}/ggml/src/ggml-cpu/amx/${file}.cpp" DIRECTORY "${LLAMA_DIR}/ggml/src"
            APPEND PROPERTY COMPILE_OPTIONS -include "${CMAKE_CURRENT_SOURCE_DIR}/native/amx_files.h")
    endforeach()
endif()

if (GGML_BACKEND_DL)
    set_property(
        SOURCE "${LLAMA_DIR}/src/llama.cpp" DIRECTORY "${LLAMA_DIR}/src"
        APPEND PROPERTY COMPILE_OPTIONS
        "$<IF:$<CXX_COMPILER_ID:MSVC>,/FI,-include>" "${CMAKE_CURRENT_SOURCE_DIR}/native/no_search.h")
endif()

# The shim looks at a model's tensors, for which llama.h has no function (native/src/weights.cpp).
set_target_properties(llama PROPERTIES WINDOWS_EXPORT_ALL_SYMBOLS ON)

# Every shared library llama.cpp defines, whichever backends were chosen.
function(causerie_collect_libraries dir out)
    get_property(targets DIRECTORY "${dir}" PROPERTY BUILDSYSTEM_TARGETS)
    get_property(children DIRECTORY "${dir}" PROPERTY SUBDIRECTORIES)
    set(found "")
    foreach (target IN LISTS targets)
        get_target_property(type ${target} TYPE)
        if (type STREQUAL "SHARED_LIBRARY" OR type STREQUAL "MODULE_LIBRARY")
            list(APPEND found ${target})
        endif()
    endforeach()
    foreach (child IN LISTS children)
        causerie_collect_libraries("${child}" below)
        list(APPEND found ${below})
    endforeach()
    set(${out} ${found} PARENT_SCOPE)
endfunction()
causerie_collect_libraries("${LLAMA_DIR}" LLAMA_LIBRARIES)
list(FILTER LLAMA_LIBRARIES EXCLUDE REGEX "(-impl|server-context|^test-|^export-)")

if (APPLE)
    set(origin "@loader_path")
else()
    set(origin "$ORIGIN")
endif()
set(PLUGIN_COMMIT "${CMAKE_CURRENT_BINARY_DIR}/plugin_commit.c")
configure_file(native/plugin_commit.c.in "${PLUGIN_COMMIT}" @ONLY)
# NVIDIA's libraries: where pip puts them (`pip install "causerie[cuda13]"`), or the toolkit that this machine has.
set(nvidia_libraries "")
if (GGML_CUDA)
    find_package(CUDAToolkit REQUIRED)
    if (CUDAToolkit_VERSION_MAJOR GREATER_EQUAL 13)
        set(nvidia_libraries "${origin}/../../nvidia/cu${CUDAToolkit_VERSION_MAJOR}/lib")
    else()
        set(nvidia_libraries "${origin}/../../nvidia/cublas/lib" "${origin}/../../nvidia/cuda_runtime/lib")
    endif()
    if (NOT GGML_BACKEND_DL)
        list(APPEND nvidia_libraries "${CUDAToolkit_LIBRARY_DIR}")
    endif()
endif()
foreach (target IN LISTS LLAMA_LIBRARIES)
    # Version suffixes are symbolic links, which wheels cannot hold.
    set_property(TARGET ${target} PROPERTY VERSION)
    set_property(TARGET ${target} PROPERTY SOVERSION)
    set_target_properties(${target} PROPERTIES INSTALL_RPATH "${origin}")
    if (target STREQUAL "ggml-cuda")
        set_property(TARGET ${target} APPEND PROPERTY INSTALL_RPATH ${nvidia_libraries})
    endif()
    get_target_property(type ${target} TYPE)
    if (type STREQUAL "SHARED_LIBRARY")
        # A name of our own: the loader takes a library that another package has loaded under the same soname for ours.
        set_target_properties(${target} PROPERTIES OUTPUT_NAME "causerie-${target}")
    else()
        target_sources(${target} PRIVATE "${PLUGIN_COMMIT}")
    endif()
    if (UNIX AND NOT APPLE)
        # Calls within a library stay in it. Otherwise llama.cpp's core runs the copies of templates that llama-common
        # happens to contain too: pages of a library that most processes never need.
        target_link_options(${target} PRIVATE LINKER:-Bsymbolic-functions)
    endif()
    install(TARGETS ${target}
        LIBRARY DESTINATION causerie/lib COMPONENT causerie
        RUNTIME DESTINATION causerie/lib COMPONENT causerie
        ARCHIVE DESTINATION causerie/lib COMPONENT causerie-unused EXCLUDE_FROM_ALL)
endforeach()

# The licences of what those libraries contain.
file(READ "${LLAMA_DIR}/vendor/hash/xxhash/xxhash.h" xxhash_header)
string(FIND "${xxhash_header}" "*/" xxhash_end)
string(SUBSTRING "${xxhash_header}" 0 ${xxhash_end} xxhash_licence)
file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/LICENSE-xxHash" "${xxhash_licence}*/\n")
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/LICENSE-xxHash" DESTINATION causerie/licenses COMPONENT causerie)
foreach (pair IN ITEMS LICENSE=llama.cpp licenses/LICENSE-jsonhpp=jsonhpp vendor/cpp-httplib/LICENSE=cpp-httplib)
    string(REPLACE "=" ";" pair "${pair}")
    list(GET pair 0 file)
    list(GET pair 1 name)
    install(FILES "${LLAMA_DIR}/${file}" DESTINATION causerie/licenses RENAME LICENSE-${name} COMPONENT causerie)
endforeach()
