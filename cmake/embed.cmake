# cmake -DIN=FILE -DNAME=IDENTIFIER -DOUT=FILE.c -P embed.cmake: a file as a C array.
file(READ ${IN} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n"
    bytes "${bytes}")
file(WRITE ${OUT} "#include \"report/embedded.h\"\n\n"
    "const unsigned char embedded_${NAME}[] = {\n${bytes}\n};\n"
    "const size_t embedded_${NAME}_bytes = sizeof embedded_${NAME};\n")
