// The compiled parts of Boost.Asio and Boost.Beast, once.
//
// Without their assertions: basic_parser 1.81 asserts five bytes where a body's first chunk is its
// last and arrives as "0\r\n" and then one byte more. What follows the assertion is right for
// fewer, and no client may end the process.
#define BOOST_DISABLE_ASSERTS
#define BOOST_ASIO_SEPARATE_COMPILATION
#define BOOST_BEAST_SEPARATE_COMPILATION
#include <boost/asio/impl/src.hpp>
#include <boost/asio/ssl/impl/src.hpp>
#include <boost/beast/src.hpp>
