# weft_module(NAME SOURCES file... USES module... LIBS target...): one folder of src/ as a
# static library; USES are the modules to its left in the layer order.
function(weft_module name)
    cmake_parse_arguments(ARG "" "" "SOURCES;USES;LIBS" ${ARGN})
    add_library(weft_${name} STATIC ${ARG_SOURCES})
    target_link_libraries(weft_${name} PUBLIC weft_flags ${ARG_LIBS})
    foreach(module ${ARG_USES})
        target_link_libraries(weft_${name} PUBLIC weft_${module})
    endforeach()
endfunction()

# weft_pkg(TARGET_NAME pkgconfig-name debian-package): an imported target through
# pkg-config, or one clear line naming the package to install.
find_package(PkgConfig REQUIRED)
function(weft_pkg target pc package)
    if(TARGET PkgConfig::${target})
        return()
    endif()
    pkg_check_modules(${target} IMPORTED_TARGET GLOBAL ${pc})
    if(NOT ${target}_FOUND)
        message(FATAL_ERROR "weft needs ${pc}: install ${package}")
    endif()
endfunction()

# weft_unit_test(NAME SOURCES... USES module... [RANKS n...] [TIMEOUT s] [LABELS l...])
# A cmocka program. Without RANKS it runs by itself; with RANKS it runs under mpirun once
# for each count (skipped from the build where WEFT_COMM is serial).
function(weft_unit_test name)
    cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;USES;RANKS;LABELS;LIBS" ${ARGN})
    if(NOT ARG_TIMEOUT)
        set(ARG_TIMEOUT 120)
    endif()
    if(ARG_RANKS AND WEFT_COMM STREQUAL "serial")
        return()
    endif()
    weft_pkg(CMOCKA cmocka libcmocka-dev)
    add_executable(${name} ${ARG_SOURCES})
    target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/support)
    foreach(module ${ARG_USES})
        target_link_libraries(${name} PRIVATE weft_${module})
    endforeach()
    target_link_libraries(${name} PRIVATE weft_flags ${ARG_LIBS} PkgConfig::CMOCKA)
    if(ARG_RANKS)
        foreach(ranks ${ARG_RANKS})
            add_test(NAME ${name}.p${ranks}
                COMMAND ${CMAKE_SOURCE_DIR}/tests/support/mpirun ${ranks} $<TARGET_FILE:${name}>)
            set_tests_properties(${name}.p${ranks} PROPERTIES TIMEOUT ${ARG_TIMEOUT}
                LABELS "mpi;${ARG_LABELS}" RESOURCE_LOCK mpirun PROCESSORS 2
                SKIP_RETURN_CODE 77)
        endforeach()
    else()
        add_test(NAME ${name} COMMAND ${name})
        set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT}
            LABELS "unit;${ARG_LABELS}" SKIP_RETURN_CODE 77)
    endif()
endfunction()

# weft_script_test(NAME COMMAND... [TIMEOUT s] [LABELS l...]): a test in sh or Python that
# finds the built program in $WEFT and its own scratch folder in $WEFT_TMP.
function(weft_script_test name)
    cmake_parse_arguments(ARG "" "TIMEOUT" "COMMAND;LABELS" ${ARGN})
    if(NOT ARG_TIMEOUT)
        set(ARG_TIMEOUT 300)
    endif()
    # Of two tests side by side one may be a script, unless it needs two cores itself.
    set(processors 2)
    if(unit IN_LIST ARG_LABELS)
        set(processors 1)
    endif()
    add_test(NAME ${name} COMMAND ${ARG_COMMAND})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} SKIP_RETURN_CODE 77
        PROCESSORS ${processors} LABELS "${ARG_LABELS}" RESOURCE_LOCK mpirun
        ENVIRONMENT "WEFT=$<TARGET_FILE:weft>;WEFT_TMP=${CMAKE_BINARY_DIR}/tmp/${name};WEFT_BUILD=${CMAKE_BINARY_DIR};WEFT_SOURCE=${CMAKE_SOURCE_DIR};WEFT_TASKS=${WEFT_TASKS};WEFT_COMM=${WEFT_COMM};WEFT_FAULTS=${WEFT_FAULTS};WEFT_SANITIZE=${WEFT_SANITIZE}")
endfunction()
